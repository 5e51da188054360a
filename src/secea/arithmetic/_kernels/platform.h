/* What only some compilers, processors and systems have. Each of it has a plain form beside it, in standard C11, which
 * SECEA_PLAIN chooses for all: tests compare the two, bit for bit. */

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__ /* one of the headers above says so */
#include <malloc.h>
#endif

/* A product is rounded before something is added to it. GCC is told by -ffp-contract=off. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__GNUC__) && defined(__x86_64__) && !defined(SECEA_PLAIN)
#define GNU_X86
#endif

/* Loops are compiled for several levels of x86-64, and the loader takes the best. Musl's loader cannot do that. GCC knows the
 * levels by these names since version 12. */
#if defined(GNU_X86) && !defined(__clang__) && __GNUC__ >= 12 && defined(__GLIBC__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

/* A part of a loop, which is compiled wherever it is used: for the same processors as what is around it, and with its constants. */
#ifdef __GNUC__
#define INLINED static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif

/* Instructions that are written out, where the processor turns out to have them. Not with GCC for Windows, which does not align
 * the stack as they need it (its bug 54412). */
#if defined(GNU_X86) && (defined(__clang__) || !defined(_WIN32))
#include <cpuid.h>
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define AESNI __attribute__((target("aes,sse4.1")))
#define VAES256 __attribute__((target("aes,vaes,avx2")))
#define VAES512 __attribute__((target("aes,vaes,avx512f,avx512bw")))

static int has_avx2, has_aes; /* has_aes: 1 AES-NI, 2 VAES on 256 bits, 3 on 512 */

/* Compilers have a function for this, but not all know VAES, and not all bring what it needs. */
__attribute__((constructor)) static void ask_the_processor(void) {
    unsigned a, b, c, d, saved, more;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    has_aes = (c >> 19 & 1) && (c >> 25 & 1); /* SSE4.1, AES */
    if (!(c >> 27 & 1)) return;               /* the system does not save wide registers */
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(more) : "c"(0));
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    has_avx2 = b >> 5 & 1;
    if (!has_aes || !has_avx2 || !(c >> 9 & 1)) return; /* VAES */
    has_aes = (saved & 0xE6) == 0xE6 && (b >> 16 & 1) && (b >> 30 & 1) ? 3 : 2; /* AVX-512 F, BW */
}
#endif

static inline int trailing_zeros(uint64_t x) { /* x is not 0 */
#if defined(__GNUC__) && !defined(SECEA_PLAIN)
    return __builtin_ctzll(x);
#else
    int zeros = 0;
    for (int step = 32; step; step /= 2)
        if (!(x << (64 - step))) x >>= step, zeros += step;
    return zeros;
#endif
}

/* ------------------------------------------------------------------------------------------- numbers of 128 bits */

#if defined(__SIZEOF_INT128__) && !defined(SECEA_PLAIN)
typedef unsigned __int128 wide;

static inline wide both(uint64_t high, uint64_t low) { return (wide)high << 64 | low; }
static inline uint64_t high_half(wide x) { return (uint64_t)(x >> 64); }
static inline uint64_t low_half(wide x) { return (uint64_t)x; }
static inline wide plus(wide x, wide y) { return x + y; }
static inline wide times(uint64_t a, uint64_t b) { return (wide)a * b; }
#else
typedef struct {
    uint64_t high, low;
} wide;

static inline wide both(uint64_t high, uint64_t low) { return (wide){high, low}; }
static inline uint64_t high_half(wide x) { return x.high; }
static inline uint64_t low_half(wide x) { return x.low; }

static inline wide plus(wide x, wide y) {
    const uint64_t low = x.low + y.low;
    return both(x.high + y.high + (low < x.low), low);
}

static inline wide times(uint64_t a, uint64_t b) {
    const uint64_t a1 = a >> 32, a0 = (uint32_t)a, b1 = b >> 32, b0 = (uint32_t)b;
    const uint64_t one = a1 * b0 + (a0 * b0 >> 32), two = a0 * b1 + (uint32_t)one; /* neither overflows */
    return both(a1 * b1 + (one >> 32) + (two >> 32), two << 32 | (uint32_t)(a0 * b0));
}
#endif

static inline wide negated(wide x) { /* -x */
    return plus(both(~high_half(x), ~low_half(x)), both(0, 1));
}

static inline wide shifted_up(uint64_t x, int by) { /* 0 <= by < 128 */
    return by >= 64 ? both(x << (by - 64), 0) : by ? both(x >> (64 - by), x << by) : both(0, x);
}

static inline wide shifted_down(wide x, int by) { /* 0 <= by <= 128 */
    const uint64_t high = high_half(x), low = low_half(x);
    if (by >= 64) return both(0, by == 128 ? 0 : high >> (by - 64));
    return by ? both(high >> by, high << (64 - by) | low >> by) : x;
}
