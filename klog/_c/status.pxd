cdef extern from "status.h" nogil:
    enum:
        KL_OK
        KL_ETRUNCATED
        KL_EOVERLONG
        KL_ELENGTH
        KL_EMAGIC
        KL_ECRC
        KL_ESLACK
        KL_ECOUNT
        KL_ECODEC
        KL_ESPACE
        KL_EORDER
        KL_EUTF8
        KL_EFULL
        KL_ERANGE
        KL_ENULL
        KL_ELACKS
