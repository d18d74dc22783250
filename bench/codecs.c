/* The codecs' own C libraries in a loop: contexts and buffers are reused, blocks have the size that klog writes.
 * bench/compression_contests.py loads it.
 *
 * The libraries are found at run time, without their headers: the declarations here are their stable API.
 * Every function returns the number of bytes it produced, or 0 on failure.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const uint8_t *at;
    size_t size;
} bytes_t;

/* A function of the library, or NULL. */
#define FIND(pointer, library, name) ((pointer) = (__typeof__(pointer))dlsym((library), (name)))

/* --- lz4 ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    int block_size_id, block_mode, content_checksum, frame_type;
    unsigned long long content_size;
    unsigned dictionary_id;
    int block_checksum;
    int level;
    unsigned auto_flush, favor_decompression, reserved[3];
} lz4f_preferences_t;

typedef struct {
    unsigned stable, reserved[3];
} lz4f_options_t;

static struct {
    size_t (*create_compressor)(void **context, unsigned version);
    size_t (*begin)(void *context, void *out, size_t capacity, const lz4f_preferences_t *preferences);
    size_t (*update)(void *context, void *out, size_t capacity, const void *in, size_t size,
                     const lz4f_options_t *options);
    size_t (*end)(void *context, void *out, size_t capacity, const lz4f_options_t *options);
    size_t (*create_decompressor)(void **context, unsigned version);
    size_t (*decompress)(void *context, void *out, size_t *capacity, const void *in, size_t *size,
                         const lz4f_options_t *options);
    unsigned (*is_error)(size_t code);
    void *compressor, *decompressor;
} lz4;

static int open_lz4(void *library) {
    enum { VERSION = 100 };
    return FIND(lz4.create_compressor, library, "LZ4F_createCompressionContext") &&
           FIND(lz4.begin, library, "LZ4F_compressBegin") && FIND(lz4.update, library, "LZ4F_compressUpdate") &&
           FIND(lz4.end, library, "LZ4F_compressEnd") &&
           FIND(lz4.create_decompressor, library, "LZ4F_createDecompressionContext") &&
           FIND(lz4.decompress, library, "LZ4F_decompress") && FIND(lz4.is_error, library, "LZ4F_isError") &&
           lz4.create_compressor(&lz4.compressor, VERSION) == 0 && lz4.create_decompressor(&lz4.decompressor, VERSION) == 0;
}

static size_t lz4_compress(bytes_t in, uint8_t *out, size_t capacity) {
    static const lz4f_preferences_t preferences = {.block_size_id = 4, .block_mode = 1, .auto_flush = 1};
    static const lz4f_options_t stable = {.stable = 1};
    size_t size = lz4.begin(lz4.compressor, out, capacity, &preferences);
    if (lz4.is_error(size))
        return 0;
    size_t more = lz4.update(lz4.compressor, out + size, capacity - size, in.at, in.size, &stable);
    if (lz4.is_error(more))
        return 0;
    size += more;
    more = lz4.end(lz4.compressor, out + size, capacity - size, &stable);
    return lz4.is_error(more) ? 0 : size + more;
}

static size_t lz4_decompress(bytes_t in, uint8_t *out, size_t capacity) {
    static const lz4f_options_t stable = {.stable = 1};
    size_t made = 0;
    while (in.size != 0) {
        size_t left = capacity - made, taken = in.size;
        size_t hint = lz4.decompress(lz4.decompressor, out + made, &left, in.at, &taken, &stable);
        if (lz4.is_error(hint))
            return 0;
        made += left;
        in.at += taken;
        in.size -= taken;
        if (hint == 0)
            return made;
    }
    return 0;
}

/* --- zstd ------------------------------------------------------------------------------------------------------------ */

static struct {
    void *(*create_compressor)(void);
    void *(*create_decompressor)(void);
    size_t (*compress)(void *context, void *out, size_t capacity, const void *in, size_t size, int level);
    size_t (*decompress)(void *context, void *out, size_t capacity, const void *in, size_t size);
    unsigned (*is_error)(size_t code);
    void *compressor, *decompressor;
} zstd;

static int open_zstd(void *library) {
    return FIND(zstd.create_compressor, library, "ZSTD_createCCtx") &&
           FIND(zstd.create_decompressor, library, "ZSTD_createDCtx") &&
           FIND(zstd.compress, library, "ZSTD_compressCCtx") && FIND(zstd.decompress, library, "ZSTD_decompressDCtx") &&
           FIND(zstd.is_error, library, "ZSTD_isError") && (zstd.compressor = zstd.create_compressor()) != NULL &&
           (zstd.decompressor = zstd.create_decompressor()) != NULL;
}

static size_t zstd_compress(bytes_t in, uint8_t *out, size_t capacity) {
    size_t size = zstd.compress(zstd.compressor, out, capacity, in.at, in.size, 3);
    return zstd.is_error(size) ? 0 : size;
}

static size_t zstd_decompress(bytes_t in, uint8_t *out, size_t capacity) {
    size_t size = zstd.decompress(zstd.decompressor, out, capacity, in.at, in.size);
    return zstd.is_error(size) ? 0 : size;
}

/* --- gzip ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *in;
    unsigned in_left;
    unsigned long in_total;
    uint8_t *out;
    unsigned out_left;
    unsigned long out_total;
    const char *message;
    void *state, *allocate, *release, *opaque;
    int data_type;
    unsigned long checksum, reserved;
} z_stream_t;

static struct {
    int (*open_deflate)(z_stream_t *z, int level, int method, int window, int memory, int strategy, const char *version,
                        int size);
    int (*deflate)(z_stream_t *z, int flush);
    int (*reset_deflate)(z_stream_t *z);
    int (*open_inflate)(z_stream_t *z, int window, const char *version, int size);
    int (*inflate)(z_stream_t *z, int flush);
    int (*reset_inflate)(z_stream_t *z);
    z_stream_t compressor, decompressor;
} zlib;

enum { Z_FINISH = 4, Z_STREAM_END = 1, Z_DEFLATED = 8, GZIP_WINDOW = 16 + 15 };

static int open_gzip(void *library) {
    const int size = (int)sizeof(z_stream_t);
    return FIND(zlib.open_deflate, library, "deflateInit2_") && FIND(zlib.deflate, library, "deflate") &&
           FIND(zlib.reset_deflate, library, "deflateReset") && FIND(zlib.open_inflate, library, "inflateInit2_") &&
           FIND(zlib.inflate, library, "inflate") && FIND(zlib.reset_inflate, library, "inflateReset") &&
           zlib.open_deflate(&zlib.compressor, -1, Z_DEFLATED, GZIP_WINDOW, 8, 0, "1", size) == 0 &&
           zlib.open_inflate(&zlib.decompressor, GZIP_WINDOW, "1", size) == 0;
}

static size_t run_zlib(z_stream_t *z, int (*reset)(z_stream_t *), int (*work)(z_stream_t *, int), bytes_t in, uint8_t *out,
                       size_t capacity) {
    if (reset(z) != 0)
        return 0;
    z->in = in.at;
    z->in_left = (unsigned)in.size;
    z->out = out;
    z->out_left = (unsigned)capacity;
    return work(z, Z_FINISH) == Z_STREAM_END ? capacity - z->out_left : 0;
}

static size_t gzip_compress(bytes_t in, uint8_t *out, size_t capacity) {
    return run_zlib(&zlib.compressor, zlib.reset_deflate, zlib.deflate, in, out, capacity);
}

static size_t gzip_decompress(bytes_t in, uint8_t *out, size_t capacity) {
    return run_zlib(&zlib.decompressor, zlib.reset_inflate, zlib.inflate, in, out, capacity);
}

/* --- snappy, in xerial's frame: a header of 16 bytes, then blocks of n:i32 and n bytes -------------------------------- */

static struct {
    int (*compress)(const uint8_t *in, size_t size, uint8_t *out, size_t *capacity);
    int (*uncompress)(const uint8_t *in, size_t size, uint8_t *out, size_t *capacity);
} snappy;

static int open_snappy(void *library) {
    return FIND(snappy.compress, library, "snappy_compress") && FIND(snappy.uncompress, library, "snappy_uncompress");
}

enum { XERIAL_HEADER = 16, XERIAL_BLOCK = 32 << 10 };

static size_t snappy_compress(bytes_t in, uint8_t *out, size_t capacity) {
    size_t size = XERIAL_HEADER;
    memcpy(out, "\x82SNAPPY\0\0\0\0\1\0\0\0\1", XERIAL_HEADER);
    for (size_t at = 0; at < in.size; at += XERIAL_BLOCK) {
        size_t plain = in.size - at < XERIAL_BLOCK ? in.size - at : XERIAL_BLOCK, made = capacity - size - 4;
        if (snappy.compress(in.at + at, plain, out + size + 4, &made) != 0)
            return 0;
        uint32_t length = __builtin_bswap32((uint32_t)made);
        memcpy(out + size, &length, 4);
        size += 4 + made;
    }
    return size;
}

static size_t snappy_decompress(bytes_t in, uint8_t *out, size_t capacity) {
    size_t made = 0;
    for (size_t at = XERIAL_HEADER; at < in.size;) {
        uint32_t length;
        memcpy(&length, in.at + at, 4);
        length = __builtin_bswap32(length);
        size_t left = capacity - made;
        if (snappy.uncompress(in.at + at + 4, length, out + made, &left) != 0)
            return 0;
        made += left;
        at += 4 + length;
    }
    return made;
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *codec;
    int (*open)(void *library);
    size_t (*compress)(bytes_t in, uint8_t *out, size_t capacity);
    size_t (*decompress)(bytes_t in, uint8_t *out, size_t capacity);
} codecs[] = {
    {"lz4", open_lz4, lz4_compress, lz4_decompress},
    {"zstd", open_zstd, zstd_compress, zstd_decompress},
    {"gzip", open_gzip, gzip_compress, gzip_decompress},
    {"snappy", open_snappy, snappy_compress, snappy_decompress},
};

/* Open the library of a codec once.  Returns the number of the codec, or -1 if the library is missing. */
int codec_open(const char *codec, const char *library_name) {
    static int open[sizeof codecs / sizeof *codecs];
    for (int i = 0; i < (int)(sizeof codecs / sizeof *codecs); i++)
        if (strcmp(codec, codecs[i].codec) == 0) {
            void *library = open[i] ? NULL : dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
            open[i] |= library != NULL && codecs[i].open(library);
            return open[i] ? i : -1;
        }
    return -1;
}

/* Compress n inputs (or, with undo, decompress them), each into the same buffer.  Returns the size of the last result,
 * or 0 on failure. */
size_t codec_run(int codec, int undo, const bytes_t *in, int n, uint8_t *out, size_t capacity) {
    size_t made = 0;
    for (int i = 0; i < n; i++)
        if ((made = (undo ? codecs[codec].decompress : codecs[codec].compress)(in[i], out, capacity)) == 0)
            return 0;
    return made;
}
