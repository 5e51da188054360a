/* Vectors over prime fields: elements modulo p < 2^32 are uint32_t, elements modulo 2^61 - 1 or 2^56 - 5 are uint64_t. Functions
 * for the former work for `count` primes at once: a vector for each, one after the other, or `step` elements apart where there is
 * one. Those for the latter take `bits`, 61 or 56: those of the prime.
 * Inputs are reduced (0 <= x < p) unless said otherwise; outputs always are. Buffers do not overlap unless they are
 * the same. This file is read by the compiler and by cffi: plain declarations only. */

/* acc += x;  acc -= x */
void add32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n);
void sub32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n);
void add64(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n);
void sub64(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n);

/* out = a * b */
void mul32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n);
void mul64(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n);

/* out = 1 / x, and 0 for 0; out is not x */
void inverse32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *x, size_t n);
void inverse64(unsigned bits, uint64_t *out, const uint64_t *x, size_t n);

/* out[r][i] = sum over c of a[r][c] * x[c][i], for rows r and columns c of a; x points to rows of n elements (32: or any words, if
 * `words` is set; x is changed, and steps[c] elements after x[c] is the row for the next prime; the rows of out are
 * row_step elements apart) */
void combine32(const uint32_t *primes, size_t count, int words, uint32_t *out, size_t out_step, size_t row_step,
               const uint32_t *a, const uint32_t **x, const size_t *steps, size_t rows, size_t columns, size_t n);
void combine64(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *const *x, size_t rows, size_t columns,
               size_t n);

/* out[j][i] += sum over k in [starts[j], starts[j+1]) of w[k] * y[members[k]][i], for rows j and i < length. Where members is
 * NULL, the k-th of a row stands for y[k - starts[j]]. starts counts from the beginning of w and members. Modulo 2^61 - 1. */
void gather61(uint64_t *out, const int64_t *starts, const int64_t *members, const uint64_t *w, const uint64_t *y,
              size_t rows, size_t length);

/* out[i] = the integer with the residues x[0][i] - less[0], x[1][i] - less[1], ... modulo the primes, centred around 0, times
 * scale. inverses[a * count + b] is 1 / primes[a] modulo primes[b]. At most 16 primes. */
void join32(const uint32_t *primes, size_t count, const uint32_t *inverses, const uint32_t *less, const uint32_t *x,
            size_t x_step, double *out, size_t n, double scale);

/* The same for one prime: less is below it. */
void join64(unsigned bits, uint64_t less, const uint64_t *x, double *out, size_t n, double scale);

/* How nonzero numbers were rounded: the most significant bits that one of them has below its leading one, and the exponent of
 * the lowest bit that is set in any of them (INT_MAX if all are zero). */
void significance(const double *x, size_t n, int *used, int *step);

/* The same for each row of `dim` numbers; and how many different sizes its nonzero numbers have, counted up to `most`, which is
 * at most 64. */
void significance_rows(const double *x, size_t rows, size_t dim, int most, int *used, int *step, int *sizes);

/* Whether all elements are below their prime */
int valid32(const uint32_t *primes, size_t count, const uint32_t *x, size_t n);
int valid64(unsigned bits, const uint64_t *x, size_t n);

/* Words, n for each prime: how many there are before the first, or some fewer, that is not below its prime when it is cut to as
 * many bits as that has. So many are cut. */
size_t usable32(const uint32_t *primes, size_t count, uint32_t *words, size_t n);

/* Rejection sampling in place, for one prime: cut each word to its top bits, as many as p has, and keep those below p, in order;
 * returns how many are left. */
size_t accept32(uint32_t p, uint32_t *words, size_t n);
size_t accept64(unsigned bits, uint64_t *words, size_t n);

/* out = x mod p for signed x */
void reduce32(const uint32_t *primes, size_t count, uint32_t *out, const int64_t *x, size_t n);
void reduce64(unsigned bits, uint64_t *out, const int64_t *x, size_t n);

/* Elements modulo 2^56 - 5 as they travel: seven bytes each, little endian. What is unpacked may be anything: whether all elements
 * are below the prime is returned. */
void pack56(uint8_t *out, const uint64_t *x, size_t n);
int unpack56(uint64_t *out, const uint8_t *in, size_t n);

/* For the whole process: memory that is freed is kept for the next chunk, instead of being handed back and cleared by the
 * system each time. Up to 256 MB; with glibc. */
void keep_freed_memory(void);
void give_back_freed_memory(void);
