/* Repair of UTF-8: malformed bytes become U+FFFD, as in Java's decoder.
 *
 * One replacement for each maximal valid prefix of a sequence (Unicode 3.9, "substitution of maximal subparts").
 * A replacement has three bytes, and may replace one, so the result is at most three times as long.
 */
#ifndef KL_UTF8_H
#define KL_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the sequence at at[0..left), left > 0: positive if it is well-formed, negative: the bytes to replace. */
static inline int kl_utf8_step(const uint8_t *at, size_t left) {
    uint8_t lead = at[0];
    if (lead < 0x80)
        return 1;
    int more;
    uint8_t low = 0x80, high = 0xbf; /* of the second byte: no overlong forms, no surrogates, nothing past U+10FFFF */
    if (lead >= 0xc2 && lead <= 0xdf) {
        more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        more = 2;
        if (lead == 0xe0)
            low = 0xa0;
        else if (lead == 0xed)
            high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        more = 3;
        if (lead == 0xf0)
            low = 0x90;
        else if (lead == 0xf4)
            high = 0x8f;
    } else {
        return -1;
    }
    for (int i = 1; i <= more; i++) {
        if ((size_t)i == left || at[i] < low || at[i] > high)
            return -i;
        low = 0x80, high = 0xbf;
    }
    return more + 1;
}

/* The size of the repaired text. */
static inline size_t kl_utf8_repaired_size(const uint8_t *at, size_t size) {
    size_t out = 0;
    while (size != 0) {
        int step = kl_utf8_step(at, size);
        size_t used = (size_t)(step > 0 ? step : -step);
        out += step > 0 ? used : 3;
        at += used;
        size -= used;
    }
    return out;
}

/* Write it to out, of `space` bytes.  Returns the size, or space + 1 if that is not enough. */
static inline size_t kl_utf8_repair(const uint8_t *at, size_t size, uint8_t *out, size_t space) {
    size_t done = 0;
    while (size != 0) {
        int step = kl_utf8_step(at, size);
        size_t used = (size_t)(step > 0 ? step : -step);
        size_t made = step > 0 ? used : 3;
        if (made > space - done)
            return space + 1;
        memcpy(out + done, step > 0 ? at : (const uint8_t *)"\xef\xbf\xbd", made);
        done += made;
        at += used;
        size -= used;
    }
    return done;
}

#endif
