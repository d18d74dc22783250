/* Status codes of all kl_ functions, and their conventions.
 *
 *   0 is success, a negative number is a failure.  On failure out-values are untouched.
 *   System calls return -errno.  errno values are below 4096, so the format codes begin at -5000.
 *   KL_ETRUNCATED means more bytes could help; every other format code means no bytes can help.
 *   Leaf functions allocate nothing: the caller provides the memory.
 */
#ifndef KL_STATUS_H
#define KL_STATUS_H

enum {
    KL_OK = 0,
    KL_ETRUNCATED = -5001,  /* the bytes end inside a value */
    KL_EOVERLONG = -5002,   /* a varint continues after its last allowed byte */
    KL_ELENGTH = -5003,     /* a length or count that no valid batch or record can have */
    KL_EMAGIC = -5004,      /* a record format that klog does not read */
    KL_ECRC = -5005,        /* the checksum does not match */
    KL_ESLACK = -5006,      /* bytes left over after the last record or inside one */
    KL_ECOUNT = -5007,      /* more or fewer records than the header states */
    KL_ECODEC = -5008,      /* codec bits 5 to 7 */
    KL_ESPACE = -5009,      /* the caller's buffer is too small */
    KL_EORDER = -5010,      /* offsets that do not rise, or lie outside their segment */
    KL_EUTF8 = -5011,       /* a header key that is not UTF-8 when UTF-8 is required */
    KL_EFULL = -5012,       /* an index or a map is full */
    KL_ERANGE = -5013,      /* an integer that its type cannot hold */
    KL_ENULL = -5014,       /* null where the schema allows none */
    KL_ENOFIELD = -5015,    /* a value for which the version of the message has no field */
    KL_ELEGACY = -5016,     /* a message of magic 0 or 1, which csrc/legacy.h reads */
};

#endif
