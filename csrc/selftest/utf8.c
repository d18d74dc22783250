/* Invalid UTF-8 is repaired, in no more space than stated. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

void test_utf8(void) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"plain", "plain"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd"},                         /* one for a truncated sequence */
        {"\xe2\x82z", "\xef\xbf\xbdz"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},             /* overlong forms */
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* past U+10FFFF */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size = strlen(rows[i].in), wanted = strlen(rows[i].out);
        uint8_t *in = exact_copy((const uint8_t *)rows[i].in, size);
        uint8_t *out = malloc(wanted);
        CHECK(out != NULL && kl_utf8_repaired_size(in, size) == wanted);
        CHECK(kl_utf8_repair(in, size, out, wanted) == wanted && memcmp(out, rows[i].out, wanted) == 0);
        CHECK(kl_utf8_repair(in, size, out, wanted - 1) == wanted);
        free(in);
        free(out);
    }
}
