/* main() for a fuzz target without libFuzzer: runs it over files named on the command line, and over every prefix of
 * those up to 1 KiB.  Any compiler with sanitizers will do. */
#include "fuzz.h"

enum { CUT_MAX = 1024 };

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    CLAIM(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long end = ftell(file);
    CLAIM(end >= 0 && fseek(file, 0, SEEK_SET) == 0);
    *size = (size_t)end;
    uint8_t *data = malloc(*size != 0 ? *size : 1);
    CLAIM(data != NULL && fread(data, 1, *size, file) == *size);
    fclose(file);
    return data;
}

int main(int argc, char **argv) {
    LLVMFuzzerTestOneInput(NULL, 0);
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *data = read_file(argv[i], &size);
        LLVMFuzzerTestOneInput(data, size);
        for (size_t cut = 0; size <= CUT_MAX && cut < size; cut++)
            LLVMFuzzerTestOneInput(data, cut);
        free(data);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
