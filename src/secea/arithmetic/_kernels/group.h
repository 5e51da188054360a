/* Batches of operations in ristretto255. Every operation is one of libsodium's, called by address: which library that is turns
 * out at run time. Points and scalars are 32 bytes each, one after the other. Functions return how many elements were done: n, or
 * the index of the first one that libsodium refuses. This file is read by the compiler and by cffi: plain declarations only. */

typedef struct {
    int (*multiply)(uint8_t *out, const uint8_t *scalar, const uint8_t *point);
    int (*multiply_base)(uint8_t *out, const uint8_t *scalar);
    int (*add)(uint8_t *out, const uint8_t *a, const uint8_t *b);
    int (*from_uniform)(uint8_t *out, const uint8_t *uniform);
    int (*is_valid)(const uint8_t *point);
} group;

/* out[i] = scalars[i] * points[i]; an identity as the result is refused */
size_t group_multiply(const group *g, uint8_t *out, const uint8_t *points, const uint8_t *scalars, size_t n);

/* out[i] = scalars[i] * the generator; an identity is refused */
size_t group_multiply_base(const group *g, uint8_t *out, const uint8_t *scalars, size_t n);

/* out[i] = a[i] + b[i], which may be the identity */
size_t group_add(const group *g, uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n);

/* out = the sum of all points, the identity for none */
size_t group_total(const group *g, uint8_t *out, const uint8_t *points, size_t n);

/* out[i] = the point that 64 uniform bytes stand for */
size_t group_from_uniform(const group *g, uint8_t *out, const uint8_t *uniform, size_t n);

/* out[i] = whether it is the encoding of a point other than the identity */
size_t group_valid(const group *g, uint8_t *out, const uint8_t *points, size_t n);
