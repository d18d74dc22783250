/* CRC-32C (Castagnoli): kl_crc32c(0, "123456789", 9) == 0xe3069283.
 *
 * crc is the value of the preceding bytes (0 for none), so a checksum can be computed in pieces.
 * The fastest kernel of this processor is chosen at the first call. */
#ifndef KL_CRC32C_H
#define KL_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t kl_crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* Every kernel by number, to check one against another; NULL if this processor lacks it.
 * 0 is the portable table. *name is set for any number that exists. */
typedef uint32_t (*kl_crc32c_fn)(uint32_t crc, const uint8_t *data, size_t size);
kl_crc32c_fn kl_crc32c_kernel(int number, const char **name);

#endif
