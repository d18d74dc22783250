/* See rows.h. */
#include "rows.h"

#include <limits.h>
#include <stdio.h>

#include "encode.h"
#include "status.h"

/* --- types -------------------------------------------------------------------------------------------------------- */

static int refuse(int status, char *message, const char *what, const char *name, const char *format) {
    snprintf(message, KL_ROWS_MESSAGE, what, name, format);
    return status;
}

static int bind_bytes(const struct ArrowSchema *schema, const char *name, kl_bytes_column_t *column, char *message) {
    const char *format = schema->format;
    memset(column, 0, sizeof *column);
    if (schema->dictionary != NULL)
        return refuse(KL_EMAGIC, message, "column '%.60s' is dictionary-encoded%s: cast it to binary or string", name, "");
    if (strcmp(format, "z") == 0 || strcmp(format, "u") == 0) {
        column->kind = KL_BYTES_32;
    } else if (strcmp(format, "Z") == 0 || strcmp(format, "U") == 0) {
        column->kind = KL_BYTES_64;
    } else if (strcmp(format, "vz") == 0 || strcmp(format, "vu") == 0) {
        column->kind = KL_BYTES_VIEW;
    } else if (strncmp(format, "w:", 2) == 0) {
        int width = -1;
        if (sscanf(format, "w:%d", &width) != 1 || width < 0)
            return refuse(KL_EMAGIC, message, "column '%.60s' has an unknown width (Arrow format '%.40s')", name,
                          format);
        column->kind = KL_BYTES_FIXED;
        column->width = width;
    } else if (strcmp(format, "n") == 0) {
        column->kind = KL_BYTES_NULL;
    } else {
        return refuse(KL_EMAGIC, message,
                      "column '%.60s' is neither binary nor string (Arrow format '%.40s'): cast it", name, format);
    }
    return KL_OK;
}

static int bind_time(const struct ArrowSchema *schema, kl_time_column_t *column, char *message) {
    static const char *const starts[] = {"tss:", "tsm:", "tsu:", "tsn:"};
    memset(column, 0, sizeof *column);
    if (schema->dictionary == NULL) {
        if (strcmp(schema->format, "n") == 0)
            return KL_OK;
        if (strcmp(schema->format, "l") == 0) {
            column->kind = KL_TIME_INT64;
            return KL_OK;
        }
        for (int i = 0; i < 4; i++)
            if (strncmp(schema->format, starts[i], 4) == 0) {
                column->kind = (kl_time_kind_t)(KL_TIME_S + i);
                return KL_OK;
            }
    }
    return refuse(KL_EMAGIC, message,
                  "column '%s' is neither a timestamp nor int64 of milliseconds (Arrow format '%.40s'): cast it",
                  "timestamp", schema->format);
}

static int bind_headers(const struct ArrowSchema *schema, kl_list_column_t *column, char *message) {
    static const char *const wanted =
        "column '%s' is neither list<struct<key: string, value: binary>> nor a map (Arrow format '%.40s')";
    memset(column, 0, sizeof *column);
    int map = strcmp(schema->format, "+m") == 0;
    if (schema->dictionary == NULL && strcmp(schema->format, "n") == 0)
        return KL_OK;
    if (map || strcmp(schema->format, "+l") == 0)
        column->kind = KL_LIST_32;
    else if (strcmp(schema->format, "+L") == 0)
        column->kind = KL_LIST_64;
    if (column->kind == KL_LIST_NULL || schema->n_children != 1 || strcmp(schema->children[0]->format, "+s") != 0 ||
        schema->children[0]->n_children != 2)
        return refuse(KL_EMAGIC, message, wanted, "headers", schema->format);
    const struct ArrowSchema *item = schema->children[0];
    column->key_child = 0; /* a map's children are found by position */
    column->value_child = 1;
    if (!map) {
        const char *first = item->children[0]->name, *second = item->children[1]->name;
        first = first != NULL ? first : "";
        second = second != NULL ? second : "";
        if (strcmp(first, "value") == 0 && strcmp(second, "key") == 0) {
            column->key_child = 1;
            column->value_child = 0;
        } else if (strcmp(first, "key") != 0 || strcmp(second, "value") != 0) {
            return refuse(KL_EMAGIC, message, wanted, "headers", schema->format);
        }
    }
    int status = bind_bytes(item->children[column->key_child], "headers.key", &column->key, message);
    if (status == KL_OK)
        status = bind_bytes(item->children[column->value_child], "headers.value", &column->value, message);
    return status;
}

/* Other columns of klog's own tables, and of its readers: a new record gets its own values. */
static int ignored_column(const char *name) {
    static const char *const names[] = {"offset", "timestamp_type", "leader_epoch", "topic", "partition"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

int kl_rows_bind(const struct ArrowSchema *schema, kl_rows_t *rows, char *message) {
    if (strcmp(schema->format, "+s") != 0 || schema->dictionary != NULL)
        return refuse(KL_EMAGIC, message, "%s need columns: a struct or table, not one column (Arrow format '%.40s')",
                      "records", schema->format);
    memset(rows, 0, sizeof *rows);
    rows->key_child = rows->value_child = rows->timestamp_child = rows->headers_child = -1;
    if (schema->n_children > INT_MAX)
        return refuse(KL_ELENGTH, message, "too many columns%s%s", "", "");
    for (int i = 0; i < (int)schema->n_children; i++) {
        const struct ArrowSchema *child = schema->children[i];
        const char *name = child->name != NULL ? child->name : "";
        int *field = strcmp(name, "key") == 0         ? &rows->key_child
                     : strcmp(name, "value") == 0     ? &rows->value_child
                     : strcmp(name, "timestamp") == 0 ? &rows->timestamp_child
                     : strcmp(name, "headers") == 0   ? &rows->headers_child
                                                      : NULL;
        if (field == NULL) {
            if (ignored_column(name))
                continue;
            return refuse(KL_ELENGTH, message,
                          "column '%.60s' is none of key, value, timestamp, headers: append() names columns by value=, "
                          "key=, and leaves out others by %s",
                          name, "ignore_other_columns=True");
        }
        if (*field >= 0)
            return refuse(KL_ELENGTH, message, "column '%.60s' occurs twice%s", name, "");
        *field = i;
        int status = field == &rows->key_child     ? bind_bytes(child, name, &rows->key, message)
                     : field == &rows->value_child ? bind_bytes(child, name, &rows->value, message)
                     : field == &rows->timestamp_child ? bind_time(child, &rows->timestamp, message)
                                                       : bind_headers(child, &rows->headers, message);
        if (status != KL_OK)
            return status;
    }
    if (rows->value_child < 0)
        return refuse(KL_ELENGTH, message, "column '%s' is missing: append() takes another one by %s", "value", "value=");
    return KL_OK;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static kl_valid_t valid_of(const struct ArrowArray *array, int64_t first) {
    if (array->null_count == 0 || array->n_buffers < 1 || array->buffers[0] == NULL)
        return (kl_valid_t){NULL, 0};
    return (kl_valid_t){array->buffers[0], first};
}

static int invalid_buffers(char *message, const char *name) {
    return refuse(KL_ELENGTH, message, "column '%.60s' does not have the buffers of its Arrow type%s", name, "");
}

/* first: of the parent's row 0, as an index of the child's rows. */
static int point_bytes(kl_bytes_column_t *column, const struct ArrowArray *array, int64_t first, const char *name,
                       char *message) {
    first += array->offset;
    if (column->kind == KL_BYTES_NULL)
        return KL_OK;
    int64_t least = column->kind == KL_BYTES_FIXED ? 2 : 3;
    if (array->n_buffers < least || (column->kind != KL_BYTES_VIEW && array->n_buffers != least))
        return invalid_buffers(message, name);
    column->valid = valid_of(array, first);
    column->entries = array->buffers[1];
    if (array->length == 0)
        return KL_OK; /* the buffers may be missing */
    switch (column->kind) {
    case KL_BYTES_32:
        column->entries += 4 * first;
        column->bytes = array->buffers[2];
        break;
    case KL_BYTES_64:
        column->entries += 8 * first;
        column->bytes = array->buffers[2];
        break;
    case KL_BYTES_VIEW:
        column->entries += 16 * first;
        column->blocks = (const uint8_t *const *)array->buffers + 2;
        break;
    default:
        if (column->width != 0)
            column->entries += column->width * first;
        break;
    }
    return KL_OK;
}

static int point_time(kl_time_column_t *column, const struct ArrowArray *array, int64_t first, char *message) {
    first += array->offset;
    if (column->kind == KL_TIME_NULL)
        return KL_OK;
    if (array->n_buffers != 2)
        return invalid_buffers(message, "timestamp");
    column->valid = valid_of(array, first);
    column->values = array->buffers[1];
    if (array->length != 0)
        column->values += first;
    return KL_OK;
}

static int point_headers(kl_list_column_t *column, const struct ArrowArray *array, int64_t first, char *message) {
    first += array->offset;
    if (column->kind == KL_LIST_NULL)
        return KL_OK;
    if (array->n_buffers != 2 || array->n_children != 1 || array->children[0]->n_children != 2)
        return invalid_buffers(message, "headers");
    column->valid = valid_of(array, first);
    column->entries = array->buffers[1];
    if (array->length != 0)
        column->entries += (column->kind == KL_LIST_32 ? 4 : 8) * first;
    const struct ArrowArray *item = array->children[0];
    column->item_valid = valid_of(item, item->offset);
    int status = point_bytes(&column->key, item->children[column->key_child], item->offset, "headers.key", message);
    if (status == KL_OK)
        status = point_bytes(&column->value, item->children[column->value_child], item->offset, "headers.value", message);
    return status;
}

int kl_rows_point(kl_rows_t *rows, const struct ArrowArray *array, char *message) {
    int most = rows->key_child;
    most = rows->value_child > most ? rows->value_child : most;
    most = rows->timestamp_child > most ? rows->timestamp_child : most;
    most = rows->headers_child > most ? rows->headers_child : most;
    if (array->length < 0 || array->offset < 0 || array->n_children <= most)
        return refuse(KL_ELENGTH, message, "the %s of an Arrow array are not those of its schema%s", "columns", "");
    rows->length = array->length;
    rows->picked = NULL;
    rows->valid = valid_of(array, array->offset);
    int status = KL_OK;
    if (rows->key_child >= 0)
        status = point_bytes(&rows->key, array->children[rows->key_child], array->offset, "key", message);
    if (status == KL_OK)
        status = point_bytes(&rows->value, array->children[rows->value_child], array->offset, "value", message);
    if (status == KL_OK && rows->timestamp_child >= 0)
        status = point_time(&rows->timestamp, array->children[rows->timestamp_child], array->offset, message);
    if (status == KL_OK && rows->headers_child >= 0)
        status = point_headers(&rows->headers, array->children[rows->headers_child], array->offset, message);
    return status;
}

static int64_t span(const kl_bytes_column_t *column, int64_t from, int64_t length) {
    int64_t first, size, last;
    if (column->kind == KL_BYTES_32) {
        int32_t ends[2];
        memcpy(&ends[0], column->entries + 4 * from, 4);
        memcpy(&ends[1], column->entries + 4 * length, 4);
        return (int64_t)ends[1] - ends[0];
    }
    if (column->kind == KL_BYTES_64) {
        memcpy(&first, column->entries + 8 * from, 8);
        memcpy(&last, column->entries + 8 * length, 8);
        return last - first;
    }
    if (column->kind == KL_BYTES_FIXED)
        return column->width * (length - from);
    size = 0; /* unknown for views and nulls without reading them: sample a few */
    if (column->kind == KL_BYTES_VIEW) {
        for (int64_t i = from; i < length && i < from + 16; i++) {
            int64_t one;
            kl_bytes_at(column, i, &one);
            size += one > 0 ? one : 0;
        }
        if (length - from > 16)
            size = size / 16 * (length - from);
    }
    return size;
}

int64_t kl_rows_bytes(const kl_rows_t *rows, int64_t from) {
    int64_t length = rows->length;
    if (from >= length)
        return 0;
    if (rows->picked != NULL)
        return 64 * (length - from);
    return span(&rows->key, from, length) + span(&rows->value, from, length);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* The range of a row's headers in the list's items. */
static void headers_range(const kl_list_column_t *column, int64_t i, int64_t *from, int64_t *to) {
    *from = *to = 0;
    if (column->kind == KL_LIST_NULL || !kl_valid_at(column->valid, i))
        return;
    if (column->kind == KL_LIST_32) {
        int32_t ends[2];
        memcpy(ends, column->entries + 4 * i, sizeof ends);
        *from = ends[0];
        *to = ends[1];
    } else {
        int64_t ends[2];
        memcpy(ends, column->entries + 8 * i, sizeof ends);
        *from = ends[0];
        *to = ends[1];
    }
}

/* Bytes that items from..to take, -1 if one has no key. */
static int64_t headers_size(const kl_list_column_t *column, int64_t from, int64_t to) {
    int64_t sum = 0;
    for (int64_t i = from; i < to; i++) {
        int64_t key_size, value_size;
        if (!kl_valid_at(column->item_valid, i))
            return -1;
        kl_bytes_at(&column->key, i, &key_size);
        kl_bytes_at(&column->value, i, &value_size);
        if (key_size < 0)
            return -1;
        sum += (int64_t)kl_varlong_size(key_size) + key_size + (int64_t)kl_varlong_size(value_size) +
               (value_size > 0 ? value_size : 0);
    }
    return sum;
}

static uint8_t *headers_write(uint8_t *at, const kl_list_column_t *column, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        int64_t key_size, value_size;
        const uint8_t *key = kl_bytes_at(&column->key, i, &key_size);
        const uint8_t *value = kl_bytes_at(&column->value, i, &value_size);
        at = kl_header_write(at, key, key_size, value, value_size);
    }
    return at;
}

static inline int64_t divide_down(int64_t value, int64_t by) { return value / by - (value % by < 0); }

/* Milliseconds of row i, or `missing`. KL_ROWS_DONE | KL_ROWS_OVERFLOW | KL_ROWS_EARLY, which an int64 never is. */
static inline kl_rows_end_t time_at(const kl_time_column_t *column, int64_t i, int64_t missing, int64_t *out) {
    if (column->kind == KL_TIME_NULL || !kl_valid_at(column->valid, i)) {
        *out = missing;
        return KL_ROWS_DONE;
    }
    int64_t value = column->values[i];
    switch (column->kind) {
    case KL_TIME_S:
        if (__builtin_mul_overflow(value, 1000, out))
            return KL_ROWS_OVERFLOW;
        break;
    case KL_TIME_US:
        *out = divide_down(value, 1000);
        break;
    case KL_TIME_NS:
        *out = divide_down(value, 1000000);
        break;
    default:
        *out = value;
    }
    return value < 0 && column->kind != KL_TIME_INT64 ? KL_ROWS_EARLY : KL_ROWS_DONE;
}

kl_rows_end_t kl_rows_write(const kl_rows_t *rows, const kl_rows_rules_t *rules, int64_t *row, kl_batch_t *b,
                            kl_rows_out_t *out) {
    kl_rows_end_t end = KL_ROWS_DONE;
    const int has_headers = rows->headers.kind != KL_LIST_NULL;
    uint8_t *const start = out->at;
    uint8_t *at = start + out->size;
    int64_t n = *row;
    int32_t count = b->count;
    int64_t base = b->base_timestamp, largest = b->max_timestamp;
    for (; n < rows->length; n++) {
        const int64_t i = kl_rows_at(rows, n);
        const int present = kl_valid_at(rows->valid, i);
        kl_record_in_t r = {.key_size = -1, .value_size = -1};
        int64_t timestamp = rules->timestamp_default, from = 0, to = 0;
        if (present) {
            r.key = kl_bytes_at(&rows->key, i, &r.key_size);
            r.value = kl_bytes_at(&rows->value, i, &r.value_size);
            end = time_at(&rows->timestamp, i, timestamp, &timestamp);
            if (end != KL_ROWS_DONE)
                break;
        }
        if (rules->key_required && r.key_size < 0) {
            end = KL_ROWS_KEY;
            break;
        }
        if (timestamp < rules->timestamp_min || timestamp > rules->timestamp_max || timestamp < 0) {
            if (timestamp != -1) {
                end = timestamp < -1 ? KL_ROWS_NEGATIVE : KL_ROWS_TIMESTAMP;
                out->timestamp = timestamp;
                break;
            }
        }
        if (has_headers && present) {
            headers_range(&rows->headers, i, &from, &to);
            r.headers_size = headers_size(&rows->headers, from, to);
            r.header_count = (int32_t)(to - from);
            if (r.headers_size < 0) {
                end = KL_ROWS_HEADER_KEY;
                break;
            }
        }
        if (count == 0 && !rules->base_given)
            base = timestamp;
        r.timestamp_delta = (int64_t)((uint64_t)timestamp - (uint64_t)base);
        r.offset_delta = count;
        const int64_t body_size = kl_record_body_size(&r);
        const int64_t size = (at - start) + body_size + (int64_t)kl_varlong_size(body_size);
        if (size > rules->batch_bytes_max && count != 0) {
            end = KL_ROWS_FULL;
            break;
        }
        if (size > rules->message_bytes_max) {
            out->more = (size_t)size;
            end = KL_ROWS_SIZE;
            break;
        }
        if (out->capacity - (size_t)(at - start) < (size_t)body_size + KL_VARINT_MAX) {
            out->more = (size_t)body_size + KL_VARINT_MAX;
            end = KL_ROWS_SPACE;
            break;
        }
        const int64_t headers = r.headers_size;
        r.headers_size = 0; /* they are written below, from columns */
        at = kl_record_write(at, &r, body_size);
        if (headers != 0)
            at = headers_write(at, &rows->headers, from, to);
        count++;
        largest = timestamp > largest ? timestamp : largest;
    }
    *row = n;
    out->size = (size_t)(at - start);
    b->count = count;
    b->max_timestamp = largest;
    if (count != 0)
        b->base_timestamp = base;
    return end;
}
