/* See arrow.h. */
#include "arrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static void release_schema(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++) {
        struct ArrowSchema *child = s->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    free(s->children);
    s->release = NULL;
}

int kl_arrow_schema(struct ArrowSchema *s, const char *format, const char *name, int64_t n) {
    memset(s, 0, sizeof *s);
    if (n != 0) {
        s->children = calloc((size_t)n, sizeof *s->children);
        if (s->children == NULL)
            return -ENOMEM;
    }
    s->format = format;
    s->name = name;
    s->flags = KL_ARROW_NULLABLE;
    s->n_children = n;
    s->release = release_schema;
    for (int64_t i = 0; i < n; i++) {
        s->children[i] = calloc(1, sizeof **s->children);
        if (s->children[i] == NULL) {
            release_schema(s);
            return -ENOMEM;
        }
    }
    return KL_OK;
}

/* The private data of an exported array: its buffer pointers and a reference to its owner. */
typedef struct {
    void (*drop)(void *);
    void *owner;
    const void *buffers[];
} exported_t;

static void release_children(struct ArrowArray *a) {
    for (int64_t i = 0; i < a->n_children; i++) {
        struct ArrowArray *child = a->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    free(a->children);
}

static void release_array(struct ArrowArray *a) {
    release_children(a);
    exported_t *exported = a->private_data;
    exported->drop(exported->owner);
    free(exported);
    a->release = NULL;
}

int kl_arrow_array(struct ArrowArray *a, int64_t length, int64_t n_buffers, int64_t n_children, void (*drop)(void *),
                   void *owner) {
    memset(a, 0, sizeof *a);
    exported_t *exported = calloc(1, sizeof *exported + (size_t)n_buffers * sizeof *exported->buffers);
    if (exported == NULL)
        return -ENOMEM;
    if (n_children != 0) {
        a->children = calloc((size_t)n_children, sizeof *a->children);
        if (a->children == NULL) {
            free(exported);
            return -ENOMEM;
        }
    }
    exported->drop = drop;
    exported->owner = owner;
    a->length = length;
    a->n_buffers = n_buffers;
    a->buffers = exported->buffers;
    a->n_children = n_children;
    a->private_data = exported;
    a->release = release_array;
    for (int64_t i = 0; i < n_children; i++) {
        a->children[i] = calloc(1, sizeof **a->children);
        if (a->children[i] == NULL) {
            release_children(a);
            free(exported);
            memset(a, 0, sizeof *a); /* released: its parent must not release it again */
            return -ENOMEM;
        }
    }
    return KL_OK;
}
