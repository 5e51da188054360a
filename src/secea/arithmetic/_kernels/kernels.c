/* The inner loops of secea. Each one is a plain loop that the compiler vectorises; see kernels.h for what they do. */

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#endif

typedef unsigned __int128 wide;

#define TILE 512 /* elements worked on at a time, so that they stay in the first-level cache */

void keep_freed_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_ARENA_MAX, 1); /* what one thread frees, another takes while it is still in the cache */
#endif
}

/* ---------------------------------------------------------------------------------------------- primes below 2^32 */

/* Primes 2^32 - c with small c: 2^32 = c, so the high half folds into the low half. Two folds bring any 64-bit number
 * below 2^32 + 2^21, and x >= p shows in the carry of x + c; then x - p = x + c modulo 2^32. The casts tell the compiler
 * that every factor has 32 bits.
 *
 * Light primes 2^30 - c: 2^32 = 4c and 2^30 = c. One fold of each kind brings any 64-bit number below 2^30 + 2^25 < 2p. Their
 * products have 60 bits, so that LIGHT_GROUP of them, and a number below 2^32, add up in 64 bits: no carry to be looked
 * after. Of products with any word of 32 bits only LIGHT_WORDS do. */
#define FULL(p) ((p) > 0u - 1024)
#define LIGHT(p) ((p) < 1u << 30 && (p) > (1u << 30) - 1024)
#define FOLDS(p) (FULL(p) || LIGHT(p))
#define LIGHT_GROUP 15
#define LIGHT_WORDS 3
#define LOW30 ((1u << 30) - 1)

static inline uint64_t fold(uint64_t x, uint32_t c) { return (uint64_t)(uint32_t)(x >> 32) * c + (uint32_t)x; }

static inline uint32_t folded(uint64_t x, uint32_t c) {
    x = fold(fold(x, c), c);
    return (uint32_t)(x + (c & (0 - ((x + c) >> 32))));
}

static inline uint32_t folded_light(uint64_t x, uint32_t p) {
    const uint32_t c = LOW30 + 1 - p;
    x = fold(x, 4 * c);
    const uint32_t rest = (uint32_t)(x >> 30) * c + ((uint32_t)x & LOW30);
    return rest >= p ? rest - p : rest;
}

FAST static void add_one(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t room = p - x[i]; /* acc + x >= p exactly when acc >= p - x; no sum overflows */
        acc[i] = acc[i] >= room ? acc[i] - room : acc[i] + x[i];
    }
}

FAST static void sub_one(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (p - x[i]);
}

void add32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n) {
    for (size_t b = 0; b < count; b++) add_one(primes[b], acc + b * acc_step, x + b * x_step, n);
}

void sub32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n) {
    for (size_t b = 0; b < count; b++) sub_one(primes[b], acc + b * acc_step, x + b * x_step, n);
}

static void mul_folding(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t product = (uint64_t)a[i] * b[i];
        out[i] = LIGHT(p) ? folded_light(product, p) : folded(product, 0u - p);
    }
}

#ifdef AVX2
/* Eight elements in a register are four even and four odd ones, each in the low half of a 64-bit lane after a shift. */
AVX2 static inline __m256i fold_avx2(__m256i x, __m256i c) {
    const __m256i low = _mm256_blend_epi32(x, _mm256_setzero_si256(), 0xAA);
    return _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), c), low);
}

AVX2 static inline __m256i folded_avx2(__m256i x, __m256i c) { /* the result is in the low half of each lane */
    x = fold_avx2(fold_avx2(x, c), c);
    const __m256i carry = _mm256_srli_epi64(_mm256_add_epi64(x, c), 32);
    return _mm256_add_epi64(x, _mm256_mul_epu32(carry, c));
}

AVX2 static inline __m256i joined_avx2(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

AVX2 static inline __m256i folded_light_avx2(__m256i x, __m256i c) { /* below 2p */
    x = fold_avx2(x, _mm256_slli_epi64(c, 2));
    return _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 30), c), _mm256_and_si256(x, _mm256_set1_epi64x(LOW30)));
}

AVX2 static inline __m256i joined_light_avx2(__m256i even, __m256i odd, __m256i p) {
    const __m256i x = joined_avx2(even, odd);
    return _mm256_min_epu32(x, _mm256_sub_epi32(x, p)); /* x - p is huge if x < p */
}

#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))
#define STORE(at, value) _mm256_storeu_si256((__m256i *)(at), value)
#define SMALL(p) _mm256_set1_epi64x(LIGHT(p) ? (1u << 30) - (p) : 0u - (p)) /* c */

AVX2 static void mul_avx2(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    const __m256i c = SMALL(p), all = _mm256_set1_epi32((int)p);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i u = LOAD(a + i), v = LOAD(b + i), even = _mm256_mul_epu32(u, v);
        const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(u, 32), _mm256_srli_epi64(v, 32));
        if (LIGHT(p)) STORE(out + i, joined_light_avx2(folded_light_avx2(even, c), folded_light_avx2(odd, c), all));
        else STORE(out + i, joined_avx2(folded_avx2(even, c), folded_avx2(odd, c)));
    }
    mul_folding(p, out + i, a + i, b + i, n - i);
}
#endif

static void mul_one(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    if (FOLDS(p)) {
#ifdef AVX2
        if (HAS_AVX2) {
            mul_avx2(p, out, a, b, n);
            return;
        }
#endif
        mul_folding(p, out, a, b, n);
    } else for (size_t i = 0; i < n; i++) out[i] = (uint32_t)((uint64_t)a[i] * b[i] % p);
}

void mul32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    for (size_t k = 0; k < count; k++) mul_one(primes[k], out + k * n, a + k * n, b + k * n, n);
}

static uint32_t power32(uint32_t p, uint32_t x) { /* x^(p-2) */
    uint64_t power = x, result = 1;
    for (uint32_t e = p - 2; e; e >>= 1) {
        if (e & 1) result = result * power % p;
        power = power * power % p;
    }
    return (uint32_t)result;
}

/* Montgomery's trick: one inversion a tile, by a power, and three products an element. Zeros count as ones. */
#define INVERT(element, product, power)                                                                                \
    element before[TILE];                                                                                              \
    for (size_t start = 0; start < n; start += TILE) {                                                                 \
        const size_t size = n - start < TILE ? n - start : TILE;                                                       \
        element all = 1, rest;                                                                                         \
        for (size_t i = 0; i < size; i++) {                                                                            \
            before[i] = all;                                                                                           \
            all = product(all, x[start + i] ? x[start + i] : 1);                                                       \
        }                                                                                                              \
        rest = power(all);                                                                                             \
        for (size_t i = size; i-- > 0;) {                                                                              \
            const element value = x[start + i];                                                                        \
            out[start + i] = value ? product(rest, before[i]) : 0;                                                     \
            rest = product(rest, value ? value : 1);                                                                   \
        }                                                                                                              \
    }

static void inverse_one(uint32_t p, uint32_t *out, const uint32_t *x, size_t n) {
#define PRODUCT(a, b) ((uint32_t)((uint64_t)(a) * (b) % p))
#define POWER(a) power32(p, a)
    INVERT(uint32_t, PRODUCT, POWER)
#undef PRODUCT
#undef POWER
}

void inverse32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *x, size_t n) {
    for (size_t b = 0; b < count; b++) inverse_one(primes[b], out + b * n, x + b * n, n);
}

/* Sums of products of 32-bit numbers, which fill 64 bits each: `sum` is the sum modulo 2^64, `high` that of the products
 * without their low CUT bits. What is below is then sum - high * 2^CUT, exactly, and 2^CUT = c * 2^(CUT - 32). After at most
 * GROUP products `high` fits into 32 bits, and the sum is reduced; it may begin at any number below 2^32. */
#define CUT 38
#define GROUP 64

static inline uint32_t closed(uint64_t sum, uint64_t high, uint32_t c) { /* the argument of fold is below 2^49 */
    const uint64_t x = fold(sum - (high << CUT) + high * ((uint64_t)c << (CUT - 32)), c);
    return (uint32_t)(x + (c & (0 - ((x + c) >> 32))));
}

/* `begin` and the sum over k in [first, last) of w(k) * y(k), where `factor` and `value` say what these are. */
#define SUM_OF_PRODUCTS(total, begin, first, last, factor, value)                                                      \
    uint32_t total = (begin);                                                                                          \
    for (int64_t k = (first), end = (last); k < end;) {                                                                \
        const int64_t most = LIGHT(p) ? LIGHT_WORDS : GROUP, stop = end - k < most ? end : k + most;                   \
        uint64_t sum = total, high = 0;                                                                                \
        for (; k < stop; k++) {                                                                                        \
            const uint64_t product = (uint64_t)(factor) * (value);                                                     \
            sum += product;                                                                                            \
            high += product >> CUT;                                                                                    \
        }                                                                                                              \
        total = LIGHT(p) ? folded_light(sum, p) : closed(sum, high, 0u - p);                                           \
    }

#ifdef AVX2
AVX2 static inline __m256i closed_avx2(__m256i sum, __m256i high, __m256i c) {
    const __m256i below = _mm256_sub_epi64(sum, _mm256_slli_epi64(high, CUT));
    const __m256i above = _mm256_mul_epu32(high, _mm256_slli_epi64(c, CUT - 32));
    const __m256i x = fold_avx2(_mm256_add_epi64(below, above), c);
    const __m256i carry = _mm256_srli_epi64(_mm256_add_epi64(x, c), 32);
    return _mm256_add_epi64(x, _mm256_mul_epu32(carry, c));
}

/* Eight sums at a time: those of the even elements, and those of the odd ones. */
typedef struct {
    __m256i even, even_high, odd, odd_high;
} sums;

AVX2 static inline sums sums_from(__m256i begin) { /* eight elements */
    const __m256i zero = _mm256_setzero_si256();
    return (sums){_mm256_blend_epi32(begin, zero, 0xAA), zero, _mm256_srli_epi64(begin, 32), zero};
}

/* The loops over these are compiled twice: `light` is a constant in each. */
#define INLINE AVX2 static inline __attribute__((always_inline))

INLINE void add_products(int light, sums *s, __m256i even, __m256i odd, __m256i factor) {
    const __m256i a = _mm256_mul_epu32(even, factor), b = _mm256_mul_epu32(odd, factor);
    s->even = _mm256_add_epi64(s->even, a), s->odd = _mm256_add_epi64(s->odd, b);
    if (light) return;
    s->even_high = _mm256_add_epi64(s->even_high, _mm256_srli_epi64(a, CUT));
    s->odd_high = _mm256_add_epi64(s->odd_high, _mm256_srli_epi64(b, CUT));
}

INLINE __m256i closed_sums(int light, const sums *s, __m256i c, __m256i p) {
    if (light) return joined_light_avx2(folded_light_avx2(s->even, c), folded_light_avx2(s->odd, c), p);
    return joined_avx2(closed_avx2(s->even, s->even_high, c), closed_avx2(s->odd, s->odd_high, c));
}

/* Two rows at a time share what is loaded; one tile of x stays in the cache for all rows. */
INLINE void combine_tiles(int light, size_t group, uint32_t p, uint32_t *out, size_t row_step, const uint32_t *a,
                          const uint32_t *const *x, size_t rows, size_t columns, size_t whole) {
    const __m256i c = SMALL(p), all = _mm256_set1_epi32((int)p), zero = _mm256_setzero_si256();
    for (size_t start = 0; start < whole; start += TILE) {
        const size_t end = whole - start < TILE ? whole : start + TILE;
        for (size_t first = 0; first < columns; first += group) {
            const size_t last = columns - first < group ? columns : first + group;
            size_t r = 0;
            for (; r + 2 <= rows; r += 2) {
                const uint32_t *const f = a + r * columns, *const g = f + columns;
                uint32_t *const one = out + r * row_step, *const other = one + row_step;
                for (size_t i = start; i < end; i += 8) {
                    sums s = sums_from(first ? LOAD(one + i) : zero), t = sums_from(first ? LOAD(other + i) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(light, &s, even, odd, _mm256_set1_epi32((int)f[k]));
                        add_products(light, &t, even, odd, _mm256_set1_epi32((int)g[k]));
                    }
                    STORE(one + i, closed_sums(light, &s, c, all));
                    STORE(other + i, closed_sums(light, &t, c, all));
                }
            }
            if (r < rows)
                for (size_t i = start; i < end; i += 8) {
                    uint32_t *const at = out + r * row_step + i;
                    sums s = sums_from(first ? LOAD(at) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(light, &s, even, odd, _mm256_set1_epi32((int)a[r * columns + k]));
                    }
                    STORE(at, closed_sums(light, &s, c, all));
                }
        }
    }
}

AVX2 static void combine_avx2(uint32_t p, int words, uint32_t *out, size_t row_step, const uint32_t *a,
                              const uint32_t *const *x, size_t rows, size_t columns, size_t whole) {
    if (LIGHT(p)) combine_tiles(1, words ? LIGHT_WORDS : LIGHT_GROUP, p, out, row_step, a, x, rows, columns, whole);
    else combine_tiles(0, GROUP, p, out, row_step, a, x, rows, columns, whole);
}
#endif

static void combine_one(uint32_t p, int words, uint32_t *out, size_t row_step, const uint32_t *a, const uint32_t *const *x,
                        size_t rows, size_t columns, size_t n) {
    size_t start = 0;
#ifdef AVX2
    if (FOLDS(p) && HAS_AVX2 && columns) combine_avx2(p, words, out, row_step, a, x, rows, columns, start = n - n % 8);
#endif
    for (size_t r = 0; r < rows; r++)
        for (size_t i = start; i < n; i++)
            if (FOLDS(p)) {
                SUM_OF_PRODUCTS(total, 0, 0, (int64_t)columns, a[r * columns + k], x[k][i])
                out[r * row_step + i] = total;
            } else {
                uint64_t sum = 0;
                for (size_t k = 0; k < columns; k++) sum = (sum + (uint64_t)a[r * columns + k] * x[k][i] % p) % p;
                out[r * row_step + i] = (uint32_t)sum;
            }
}

void combine32(const uint32_t *primes, size_t count, int words, uint32_t *out, size_t out_step, size_t row_step,
               const uint32_t *a, const uint32_t **x, const size_t *steps, size_t rows, size_t columns, size_t n) {
    for (size_t b = 0; b < count; b++) {
        combine_one(primes[b], words, out + b * out_step, row_step, a + b * rows * columns, x, rows, columns, n);
        for (size_t k = 0; k < columns; k++) x[k] += steps[k];
    }
}

#define ROW_OF(k) (y + (members ? members[k] : (k)-starts[j]) * length)

#ifdef AVX2
#define AHEAD 12 /* positions */

/* `vectors` times eight elements of one row, from i on: a constant, so that their sums stay in registers. The last vector ends
 * where the row ends, and may overlap the one before: what they share is computed twice, and added once. */
INLINE void gather_wide(int light, size_t vectors, uint32_t p, uint32_t *out, const int64_t *starts,
                        const int64_t *members, const uint32_t *w, const uint32_t *y, size_t j, int64_t end,
                        size_t length, size_t i) {
    const __m256i c = SMALL(p), all = _mm256_set1_epi32((int)p);
    const int64_t group = light ? LIGHT_GROUP : GROUP;
    const size_t last = i + 8 * vectors <= length ? 8 * (vectors - 1) : length - 8 - i;
    __m256i total[6];
    sums s[6];
#define EACH_VECTOR _Pragma("GCC unroll 6") for (size_t v = 0; v < vectors; v++)
#define OF_VECTOR (v + 1 < vectors ? 8 * v : last)
    EACH_VECTOR s[v] = sums_from(LOAD(out + i + OF_VECTOR));
    for (int64_t k = starts[j];;) {
        const int64_t stop = starts[j + 1] - k < group ? starts[j + 1] : k + group;
        for (; k < stop; k++) {
            const uint32_t *const row = ROW_OF(k) + i;
            const __m256i factor = _mm256_set1_epi32((int)w[k]);
            if (members && k + AHEAD < end) /* rows are far apart: have those of buckets to come fetched meanwhile */
                for (size_t v = 0; v < vectors; v += 2) __builtin_prefetch(y + members[k + AHEAD] * length + i + 8 * v);
            EACH_VECTOR {
                const __m256i x = LOAD(row + OF_VECTOR);
                add_products(light, &s[v], x, _mm256_srli_epi64(x, 32), factor);
            }
        }
        EACH_VECTOR total[v] = closed_sums(light, &s[v], c, all);
        if (k == starts[j + 1]) break;
        EACH_VECTOR s[v] = sums_from(total[v]);
    }
    EACH_VECTOR STORE(out + i + OF_VECTOR, total[v]);
#undef EACH_VECTOR
#undef OF_VECTOR
}

/* The vectors of a row in as few equal parts as their sums have room for in the registers. */
AVX2 static void gather_avx2(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members, const uint32_t *w,
                             const uint32_t *y, size_t j, int64_t end, size_t length) {
    const size_t all = (length + 7) / 8, most = LIGHT(p) ? 6 : 3, parts = (all + most - 1) / most;
    for (size_t part = 0; part < parts; part++) {
        const size_t first = all * part / parts, vectors = all * (part + 1) / parts - first;
#define WIDE(light, vectors) gather_wide(light, vectors, p, out, starts, members, w, y, j, end, length, 8 * first)
        switch (vectors + (LIGHT(p) ? 0 : 6)) {
        case 1: WIDE(1, 1); break;
        case 2: WIDE(1, 2); break;
        case 3: WIDE(1, 3); break;
        case 4: WIDE(1, 4); break;
        case 5: WIDE(1, 5); break;
        case 6: WIDE(1, 6); break;
        case 7: WIDE(0, 1); break;
        case 8: WIDE(0, 2); break;
        default: WIDE(0, 3);
        }
#undef WIDE
    }
}
#endif

static void gather_row(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members, const uint32_t *w,
                       const uint32_t *y, size_t j, int64_t end, size_t length) {
#ifdef AVX2
    if (FOLDS(p) && HAS_AVX2 && length >= 8) {
        gather_avx2(p, out, starts, members, w, y, j, end, length);
        return;
    }
#endif
    for (size_t i = 0; i < length; i++)
        if (FOLDS(p)) {
            SUM_OF_PRODUCTS(total, out[i], starts[j], starts[j + 1], w[k], ROW_OF(k)[i])
            out[i] = total;
        } else {
            uint64_t sum = out[i];
            for (int64_t k = starts[j]; k < starts[j + 1]; k++) sum = (sum + (uint64_t)w[k] * ROW_OF(k)[i] % p) % p;
            out[i] = (uint32_t)sum;
        }
}

void gather32(const uint32_t *primes, size_t count, uint32_t **out, const int64_t *starts, const int64_t *members,
              const uint32_t **w, const size_t *w_steps, size_t sets, const uint32_t *y, size_t y_step, size_t rows,
              size_t length) {
    for (size_t b = 0; b < count; b++, y += y_step)
        for (size_t j = 0; j < rows; j++)
            for (size_t s = 0; s < sets; s++) { /* only the first set has to fetch rows from afar */
                uint32_t *const to = out[s] + (b * rows + j) * length;
                gather_row(primes[b], to, starts, members, w[s] + b * w_steps[s], y, j, s ? 0 : starts[rows], length);
            }
}

/* Garner: the mixed-radix digits of each element, tile by tile, then Horner's rule from the top. Above the middle the number
 * stands for a negative one, whose size has the complements as digits: nothing cancels. */
FAST static void digit_less(uint32_t p, uint32_t *digit, const uint32_t *other, size_t n) { /* other < 2p */
    for (size_t i = 0; i < n; i++) {
        const uint32_t rest = other[i] >= p ? other[i] - p : other[i];
        digit[i] = digit[i] >= rest ? digit[i] - rest : digit[i] + (p - rest);
    }
}

FAST static void copy_less(uint32_t p, uint32_t *digit, const uint32_t *x, uint32_t less, size_t n) {
    for (size_t i = 0; i < n; i++) digit[i] = x[i] >= less ? x[i] - less : x[i] + (p - less);
}

FAST static void above_middle(uint32_t middle, const uint32_t *digit, uint32_t *above, size_t n) {
    for (size_t i = 0; i < n; i++) above[i] = digit[i] == middle ? above[i] : digit[i] > middle ? UINT32_MAX : 0;
}

FAST static void next_digit(uint32_t p, const uint32_t *digit, const uint32_t *above, double *value, size_t n) {
    for (size_t i = 0; i < n; i++) { /* the complement p - 1 - digit, if above; as a signed number, for the conversion */
        const uint32_t size = above[i] ? p - 1 - digit[i] : digit[i];
        value[i] = value[i] * p + ((double)(int32_t)(size ^ 0x80000000u) + 0x1p31);
    }
}

FAST static void with_sign(const uint32_t *above, double *value, double scale, size_t n) { /* no branch: it is random */
    for (size_t i = 0; i < n; i++) value[i] = (value[i] + (double)(int32_t)(above[i] & 1)) * (above[i] ? -scale : scale);
}

void join32(const uint32_t *primes, size_t count, const uint32_t *inverses, const uint32_t *less, const uint32_t *x,
            size_t x_step, double *out, size_t n, double scale) {
    uint32_t digits[16][TILE], factor[TILE], above[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        memset(above, 0, sizeof above);
        memset(out + start, 0, size * sizeof *out);
        for (size_t b = 0; b < count; b++) {
            copy_less(primes[b], digits[b], x + b * x_step + start, less[b], size);
            for (size_t a = 0; a < b; a++) { /* digit = (digit - digits[a]) / primes[a] modulo p */
                const uint32_t *other = digits[a];
                if (primes[a] >= 2 * (uint64_t)primes[b]) {
                    for (size_t i = 0; i < size; i++) factor[i] = other[i] % primes[b];
                    other = factor;
                }
                digit_less(primes[b], digits[b], other, size);
                for (size_t i = 0; i < size; i++) factor[i] = inverses[a * count + b];
                mul_one(primes[b], digits[b], digits[b], factor, size);
            }
            above_middle((primes[b] - 1) / 2, digits[b], above, size);
        }
        for (size_t b = count; b-- > 0;) next_digit(primes[b], digits[b], above, out + start, size);
        with_sign(above, out + start, scale, size);
    }
}

/* The exponent of the leading bit, and that of the lowest bit that is set, of a nonzero number that is not denormal. */
static inline int leading_bit(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FF) - 1023;
}

static inline int lowest_bit(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return leading_bit(x) - 52 + __builtin_ctzll(bits | UINT64_C(1) << 52);
}

void significance(const double *x, size_t n, int *used, int *step) {
    *used = 0, *step = INT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (leading_bit(x[i]) == -1023) continue; /* zero, or denormal: as good as zero */
        const int top = leading_bit(x[i]), low = lowest_bit(x[i]);
        if (top - low > *used) *used = top - low;
        if (low < *step) *step = low;
    }
}

#define MOST_SIZES 64

/* Whether this size is among those that were seen; if not, it is put there. */
static int seen_before(double size, double *seen, int count) {
    for (int k = 0; k < count; k++)
        if (seen[k] == size) return 1;
    seen[count] = size;
    return 0;
}

void significance_rows(const double *x, size_t rows, size_t dim, int most, int *used, int *step, int *sizes) {
    double seen[MOST_SIZES];
    for (size_t row = 0; row < rows; row++, x += dim) {
        significance(x, dim, used + row, step + row);
        sizes[row] = 0;
        for (size_t i = 0; i < dim && sizes[row] < most; i++)
            if (leading_bit(x[i]) != -1023) sizes[row] += !seen_before(__builtin_fabs(x[i]), seen, sizes[row]);
    }
}

/* out = sign * (l[0] + l[1] 2^32 + l[2] 2^64 + l[3] 2^96) modulo p; the powers are below 2^30 modulo primes that fold */
FAST static void limbs_modulo(uint32_t p, uint32_t l[4][TILE], const uint32_t *negative, uint32_t *out, size_t n) {
    const uint32_t one = (uint32_t)((UINT64_C(1) << 32) % p), two = (uint32_t)((uint64_t)one * one % p);
    const uint32_t three = (uint32_t)((uint64_t)two * one % p), c = 0u - p;
    if (LIGHT(p))
        for (size_t i = 0; i < n; i++) {
            const uint32_t rest =
                folded_light(l[0][i] + (uint64_t)l[1][i] * one + (uint64_t)l[2][i] * two + (uint64_t)l[3][i] * three, p);
            out[i] = negative[i] && rest ? p - rest : rest;
        }
    else
        for (size_t i = 0; i < n; i++) {
            const uint32_t rest =
                folded(l[0][i] + (uint64_t)l[1][i] * one + (uint64_t)l[2][i] * two + (uint64_t)l[3][i] * three, c);
            out[i] = negative[i] && rest ? p - rest : rest;
        }
}

static void limbs_dividing(uint32_t p, uint32_t l[4][TILE], const uint32_t *negative, uint32_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t rest = 0;
        for (int k = 4; k-- > 0;) rest = ((rest << 32) + l[k][i]) % p;
        out[i] = (uint32_t)(negative[i] && rest ? p - rest : rest);
    }
}

/* Sign and size of x * 2^f + filler, in limbs of 32 bits. */
static void split(const double *x, const uint64_t *filler, size_t first, size_t n, int f, int used, int finest,
                  int coarsest, uint32_t limbs[4][TILE], uint32_t *negative) {
    for (size_t i = first; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const int lead = leading_bit(x[i]), exact = lead - used < finest ? finest : lead - used;
        /* the top bits of the filler, as many as are below the grid, less half of their range: another f scales them, while
         * with the low bits it would draw others, and means of two sessions would cancel them */
        const int below = (exact > coarsest ? coarsest : exact) + f;
        const wide drawn = (wide)filler[2 * i + 1] << 64 | filler[2 * i];
        const __int128 low = (__int128)(drawn >> 1 >> (127 - below)) - ((__int128)1 << below >> 1);
        /* x * 2^f: all 53 bits of x, shifted; what falls off at the bottom is far below the grid */
        const int shift = lead - 52 + f;
        const int64_t size = lead == -1023 ? 0 : (int64_t)((bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52);
        const __int128 digits = bits >> 63 ? -size : size;
        const __int128 value =
            low + (shift >= 0 ? digits * ((__int128)1 << shift) : shift > -64 ? digits >> -shift : 0);
        const wide sign = (wide)(value >> 127), magnitude = ((wide)value ^ sign) - sign; /* no branch: it is random */
        for (int k = 0; k < 4; k++) limbs[k][i] = (uint32_t)(magnitude >> 32 * k);
        negative[i] = (uint32_t)sign;
    }
}

#ifdef AVX2
/* Four numbers at a time, each of 128 bits in two halves. Where a shift count is negative as a number of 32 bits, the upper half
 * of its lane is 0, so that it is a huge one of 64 bits, and nothing is left of what is shifted. */
#define SHIFT_UP(x, by) _mm256_sllv_epi64(x, by)
#define SHIFT_DOWN(x, by) _mm256_srlv_epi64(x, by)
#define COUNT(x) _mm256_set1_epi64x((uint32_t)(x))

AVX2 static inline __m256i less_avx2(__m256i a, __m256i b) { /* all ones where a < b */
    const __m256i top = _mm256_set1_epi64x(INT64_MIN);
    return _mm256_cmpgt_epi64(_mm256_xor_si256(b, top), _mm256_xor_si256(a, top));
}

AVX2 static inline __m256i signed_avx2(__m256i x, __m256i minus) { /* -x where minus is all ones */
    return _mm256_sub_epi64(_mm256_xor_si256(x, minus), minus);
}

AVX2 static inline __m256i signed_high_avx2(__m256i high, __m256i low, __m256i minus) { /* of 128 bits: the upper half */
    const __m256i borrow = _mm256_and_si256(minus, _mm256_cmpeq_epi64(low, _mm256_setzero_si256()));
    return _mm256_sub_epi64(_mm256_xor_si256(high, minus), borrow);
}

AVX2 static void split_avx2(const double *x, const uint64_t *filler, size_t whole, int f, int used, int finest,
                            int coarsest, uint32_t limbs[4][TILE], uint32_t *negative) {
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi64x(1), ones = _mm256_set1_epi64x(-1);
    const __m256i halves = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    for (size_t i = 0; i < whole; i += 4) {
        const __m256i bits = LOAD(x + i), sign = _mm256_cmpgt_epi64(zero, bits);
        const __m256i exponent = _mm256_and_si256(_mm256_srli_epi64(bits, 52), COUNT(0x7FF));
        __m256i below = _mm256_max_epi32(_mm256_sub_epi32(exponent, COUNT(1023 + used)), COUNT(finest));
        below = _mm256_add_epi32(_mm256_min_epi32(below, COUNT(coarsest)), COUNT(f));
        const __m256i unused = _mm256_sub_epi32(COUNT(128), below);
        const __m256i some = LOAD(filler + 2 * i), more = LOAD(filler + 2 * i + 4);
        const __m256i drawn = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(some, more), 0xD8);
        const __m256i drawn_high = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(some, more), 0xD8);
        const __m256i carried = _mm256_or_si256(SHIFT_DOWN(drawn_high, _mm256_sub_epi32(COUNT(64), below)),
                                                SHIFT_UP(drawn_high, _mm256_sub_epi32(below, COUNT(64))));
        const __m256i low = _mm256_or_si256(SHIFT_DOWN(drawn, unused), carried);
        const __m256i high = SHIFT_DOWN(drawn_high, unused);
        const __m256i half = SHIFT_UP(one, _mm256_sub_epi32(below, COUNT(1)));
        const __m256i half_high = SHIFT_UP(one, _mm256_sub_epi32(below, COUNT(65)));
        const __m256i fill = _mm256_sub_epi64(low, half);
        const __m256i fill_high = _mm256_add_epi64(_mm256_sub_epi64(high, half_high), less_avx2(low, half));

        const __m256i fraction = _mm256_and_si256(bits, _mm256_set1_epi64x((INT64_C(1) << 52) - 1));
        const __m256i normal = _mm256_or_si256(fraction, _mm256_set1_epi64x(INT64_C(1) << 52));
        const __m256i digits = _mm256_andnot_si256(_mm256_cmpeq_epi64(exponent, zero), normal);
        const __m256i shift = _mm256_sub_epi32(exponent, COUNT(1075 - f)), up = _mm256_max_epi32(shift, zero);
        const __m256i down = _mm256_max_epi32(_mm256_sub_epi32(zero, shift), zero);
        const __m256i lost = _mm256_andnot_si256(SHIFT_UP(ones, down), sign);
        const __m256i kept = SHIFT_DOWN(_mm256_add_epi64(digits, lost), down); /* towards minus infinity */
        const __m256i size = SHIFT_UP(kept, up);
        const __m256i size_high = _mm256_or_si256(SHIFT_DOWN(kept, _mm256_sub_epi32(COUNT(64), up)),
                                                  SHIFT_UP(kept, _mm256_sub_epi32(up, COUNT(64))));

        const __m256i sum = _mm256_add_epi64(fill, signed_avx2(size, sign)), carry = less_avx2(sum, fill);
        const __m256i sum_high =
            _mm256_sub_epi64(_mm256_add_epi64(fill_high, signed_high_avx2(size_high, size, sign)), carry);
        const __m256i minus = _mm256_cmpgt_epi64(zero, sum_high);
        const __m256i lower = _mm256_permutevar8x32_epi32(signed_avx2(sum, minus), halves);
        const __m256i upper = _mm256_permutevar8x32_epi32(signed_high_avx2(sum_high, sum, minus), halves);
        _mm_storeu_si128((__m128i *)(limbs[0] + i), _mm256_castsi256_si128(lower));
        _mm_storeu_si128((__m128i *)(limbs[1] + i), _mm256_extracti128_si256(lower, 1));
        _mm_storeu_si128((__m128i *)(limbs[2] + i), _mm256_castsi256_si128(upper));
        _mm_storeu_si128((__m128i *)(limbs[3] + i), _mm256_extracti128_si256(upper, 1));
        _mm_storeu_si128((__m128i *)(negative + i), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(minus, halves)));
    }
}
#endif

void encode32(const uint32_t *primes, size_t count, const double *x, const uint64_t *filler, size_t n, int f, int used,
              int finest, int coarsest, uint32_t *out) {
    uint32_t limbs[4][TILE], negative[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        size_t done = 0;
#ifdef AVX2
        if (HAS_AVX2)
            split_avx2(x + start, filler + 2 * start, done = size - size % 4, f, used, finest, coarsest, limbs, negative);
#endif
        split(x + start, filler + 2 * start, done, size, f, used, finest, coarsest, limbs, negative);
        for (size_t b = 0; b < count; b++)
            (FOLDS(primes[b]) ? limbs_modulo : limbs_dividing)(primes[b], limbs, negative, out + b * n + start, size);
    }
}

FAST static int valid_one(uint32_t p, const uint32_t *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= p;
    return !bad;
}

int valid32(const uint32_t *primes, size_t count, const uint32_t *x, size_t n) {
    for (size_t b = 0; b < count; b++)
        if (!valid_one(primes[b], x + b * n, n)) return 0;
    return 1;
}

/* Whether every word, cut to the bits of p, is below it; then they are cut. */
FAST static int cut(uint32_t p, int spare, uint32_t *words, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= words[i] >> spare >= p;
    if (bad) return 0;
    if (spare)
        for (size_t i = 0; i < n; i++) words[i] >>= spare;
    return 1;
}

size_t usable32(const uint32_t *primes, size_t count, uint32_t *words, size_t n) {
    for (size_t b = 0; b < count; b++)
        for (size_t start = 0; start < n; start += TILE) {
            const size_t size = n - start < TILE ? n - start : TILE;
            if (!cut(primes[b], __builtin_clz(primes[b]), words + b * n + start, size)) return b * n + start;
        }
    return count * n;
}

size_t accept32(uint32_t p, uint32_t *words, size_t n) {
    const int spare = __builtin_clz(p);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t word = words[i] >> spare;
        words[kept] = word;
        kept += word < p;
    }
    return kept;
}

void reduce32(const uint32_t *primes, size_t count, uint32_t *out, const int64_t *x, size_t n) {
    for (size_t b = 0; b < count; b++) {
        const uint32_t p = primes[b];
        for (size_t i = 0; i < n; i++) {
            const uint64_t size = x[i] < 0 ? -(uint64_t)x[i] : (uint64_t)x[i];
            const uint32_t rest = FULL(p) ? folded(size, 0u - p) : (uint32_t)(size % p);
            out[b * n + i] = x[i] < 0 && rest ? p - rest : rest;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- p = 2^61 - 1 */

#define P61 ((UINT64_C(1) << 61) - 1)

/* x < 2^128 - 2^67: 2^61 = 1, so the high bits are added to the low ones */
static inline uint64_t reduced61(wide x) {
    const wide once = (x & P61) + (x >> 61);                   /* < 2^68 */
    const uint64_t twice = (uint64_t)(once & P61) + (uint64_t)(once >> 61); /* < 2^61 + 2^7 */
    return twice >= P61 ? twice - P61 : twice;
}

static inline uint64_t product61(uint64_t a, uint64_t b) { return reduced61((wide)a * b); }

FAST void add61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sum = acc[i] + x[i];
        acc[i] = sum >= P61 ? sum - P61 : sum;
    }
}

FAST void sub61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (P61 - x[i]);
}

void mul61(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product61(a[i], b[i]);
}

static uint64_t power61(uint64_t x) { /* x^(p-2); p - 2 = 2^61 - 3 has all bits set but the second */
    uint64_t power = x, result = 1;
    for (int bit = 0; bit < 61; bit++) {
        if (bit != 1) result = product61(result, power);
        power = product61(power, power);
    }
    return result;
}

void inverse61(uint64_t *out, const uint64_t *x, size_t n) { INVERT(uint64_t, product61, power61) }

/* Thirty-two products of 122 bits fit into 128 bits; then the sum is reduced. One tile of x stays in the cache. */
void combine61(uint64_t *out, const uint64_t *a, const uint64_t *const *x, size_t rows, size_t columns, size_t n) {
    for (size_t start = 0; start < n; start += TILE) {
        const size_t end = n - start < TILE ? n : start + TILE;
        for (size_t r = 0; r < rows; r++)
            for (size_t i = start; i < end; i++) {
                const uint64_t *factor = a + r * columns, *const last = factor + columns, *const *source = x;
                uint64_t sum = 0;
                while (factor < last) {
                    const uint64_t *const stop = last - factor < 32 ? last : factor + 32;
                    wide part = sum;
                    for (; factor < stop; factor++, source++) part += (wide)*factor * (*source)[i];
                    sum = reduced61(part);
                }
                out[r * n + i] = sum;
            }
    }
}

void gather61(uint64_t *out, const int64_t *starts, const int64_t *members, const uint64_t *w, const uint64_t *y,
              size_t rows, size_t length) {
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < length; i++) {
            int64_t k = starts[j];
            uint64_t sum = out[j * length + i];
            while (k < starts[j + 1]) {
                const int64_t stop = starts[j + 1] - k < 32 ? starts[j + 1] : k + 32;
                wide part = sum;
                for (; k < stop; k++) part += (wide)w[k] * y[(members ? members[k] : k - starts[j]) * length + i];
                sum = reduced61(part);
            }
            out[j * length + i] = sum;
        }
}

FAST static void join_one(uint64_t less, const uint64_t *x, double *out, size_t n, double scale) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t rest = x[i] >= less ? x[i] - less : x[i] + (P61 - less);
        const int64_t centred = (int64_t)rest - (rest > P61 / 2 ? (int64_t)P61 : 0);
        out[i] = (double)centred * scale;
    }
}

void join61(uint64_t less, const uint64_t *x, double *out, size_t n, double scale) { join_one(less, x, out, n, scale); }

FAST int valid61(const uint64_t *x, size_t n) {
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= P61;
    return !bad;
}

size_t accept61(uint64_t *words, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t word = words[i] >> 3;
        words[kept] = word;
        kept += word < P61;
    }
    return kept;
}

FAST void reduce61(uint64_t *out, const int64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sign = (uint64_t)(x[i] >> 63); /* all ones for negative x */
        const uint64_t size = ((uint64_t)x[i] ^ sign) - sign;
        const uint64_t once = (size & P61) + (size >> 61);
        const uint64_t rest = once >= P61 ? once - P61 : once;
        out[i] = sign && rest ? P61 - rest : rest;
    }
}
