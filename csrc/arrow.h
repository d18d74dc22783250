/* The Arrow C data and stream interfaces: three structs, which are all that two libraries in one process must agree on.
 * https://arrow.apache.org/docs/format/CDataInterface.html, /CStreamInterface.html
 *
 * The producer fills a struct.  The consumer may move it: it copies the struct and marks the old one released (release
 * = NULL).  It calls release once when it no longer needs the data, from any thread.  A child can be moved out of its
 * parent, so it has its own reference to the data.
 */
#ifndef KL_ARROW_H
#define KL_ARROW_H

#include <stdint.h>

enum {
    KL_ARROW_NULLABLE = 2,
};

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* Make a nullable node with n children, each of them empty and released; format and name must stay.
 * KL_OK | -ENOMEM */
int kl_arrow_schema(struct ArrowSchema *out, const char *format, const char *name, int64_t n);

/* Make an array with n_buffers NULL buffers and n_children children, each of them empty and released.  It has a
 * reference to its owner, and its release calls drop(owner).
 * KL_OK | -ENOMEM, and the reference then remains the caller's. */
int kl_arrow_array(struct ArrowArray *out, int64_t length, int64_t n_buffers, int64_t n_children, void (*drop)(void *),
                   void *owner);

#endif
