/* Loops over libsodium's ristretto255, so that nothing is interpreted between two points; see group.h for what they do. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "group.h"

#define ELEMENT 32 /* bytes of a point, and of a scalar */
#define UNIFORM 64

size_t group_multiply(const group *g, uint8_t *out, const uint8_t *points, const uint8_t *scalars, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (g->multiply(out + i * ELEMENT, scalars + i * ELEMENT, points + i * ELEMENT)) return i;
    return n;
}

size_t group_multiply_base(const group *g, uint8_t *out, const uint8_t *scalars, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (g->multiply_base(out + i * ELEMENT, scalars + i * ELEMENT)) return i;
    return n;
}

size_t group_add(const group *g, uint8_t *out, const uint8_t *a, const uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (g->add(out + i * ELEMENT, a + i * ELEMENT, b + i * ELEMENT)) return i;
    return n;
}

size_t group_total(const group *g, uint8_t *out, const uint8_t *points, size_t n) {
    uint8_t sum[ELEMENT] = {0}; /* the identity */
    for (size_t i = 0; i < n; i++) {
        uint8_t next[ELEMENT]; /* libsodium does not say that its buffers may overlap */
        if (g->add(next, sum, points + i * ELEMENT)) return i;
        memcpy(sum, next, ELEMENT);
    }
    memcpy(out, sum, ELEMENT);
    return n;
}

size_t group_from_uniform(const group *g, uint8_t *out, const uint8_t *uniform, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (g->from_uniform(out + i * ELEMENT, uniform + i * UNIFORM)) return i;
    return n;
}

size_t group_valid(const group *g, uint8_t *out, const uint8_t *points, size_t n) {
    static const uint8_t identity[ELEMENT] = {0};
    for (size_t i = 0; i < n; i++) {
        const uint8_t *point = points + i * ELEMENT;
        out[i] = g->is_valid(point) == 1 && memcmp(point, identity, ELEMENT) != 0;
    }
    return n;
}
