/* Two stencils as Pluto tiles them: what somebody writes in C who knows how time is tiled.

   Two arrays take turns.  A block of STEPS steps has two phases.  In the first, tiles of SLABS rows (planes) shrink by one at
   either side with every step; in the second, tiles that grow as much fill the gaps: the tiles of a phase are independent and
   all start at once, as diamonds do.  In a tile, the next dimension is skewed by a step and cut into parallelograms, so that
   what a parallelogram reads stays in the second-level cache; the last dimension is whole, for vectors.

   Threads meet in one parallel region, and at a barrier behind each phase.  The OpenMP library is called by its own names,
   because clang compiles pragmas for LLVM's library only, which is not everywhere. */
#include <stdlib.h>
#include <string.h>

void GOMP_parallel(void (*body)(void *), void *given, unsigned threads, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct stencil stencil;
struct stencil {
  int n, steps;     /* elements in each dimension, borders included; sweeps */
  int block, slabs; /* steps of a block; rows of a tile: at least twice as many */
  int width;        /* second dimension of a parallelogram */
  double *place[2];
  void (*sweep)(const stencil *s, int step, int i0, int i1, int j0, int j1);
};

/* Steps `first` to `last` of a tile: rows from `low - down * t` to `high + up * t` at the t-th step, inside of the borders. */
static void run_tile(const stencil *s, int first, int last, int low, int high, int down, int up) {
  int inside = s->n - 1, skewed = inside + (last - first);
  for (int jj = 1; jj < skewed; jj += s->width)
    for (int t = 0; t < last - first; t++) {
      int i0 = MAX(1, low - down * t), i1 = MIN(inside, high + up * t);
      int j0 = MAX(1, jj - t), j1 = MIN(inside, jj + s->width - t);
      if (i0 < i1 && j0 < j1) s->sweep(s, first + t, i0, i1, j0, j1);
    }
}

static void run_thread(void *given) {
  const stencil *s = given;
  int thread = omp_get_thread_num(), threads = omp_get_num_threads();
  int tiles = (s->n - 2 + s->slabs - 1) / s->slabs;
  for (int first = 0; first < s->steps; first += s->block) {
    int last = MIN(s->steps, first + s->block);
    for (int k = tiles * thread / threads; k < tiles * (thread + 1) / threads; k++) /* the borders stay where they are */
      run_tile(s, first, last, 1 + k * s->slabs, k + 1 < tiles ? 1 + (k + 1) * s->slabs : s->n - 1, k > 0 ? -1 : 0,
               k + 1 < tiles ? -1 : 0);
    GOMP_barrier();
    for (int k = 1 + (tiles - 1) * thread / threads; k < 1 + (tiles - 1) * (thread + 1) / threads; k++)
      run_tile(s, first, last, 1 + k * s->slabs, 1 + k * s->slabs, 1, 1);
    GOMP_barrier();
  }
}

/* Sweeps from `X` into `A`; an even number of them, with a second array that is made once. */
static void run(stencil s, size_t elements, const double *X, double *A) {
  static double *other;
  static size_t capacity;
  if (capacity < elements) {
    free(other);
    other = aligned_alloc(64, (elements * sizeof(double) + 63) / 64 * 64);
    capacity = elements;
  }
  memcpy(A, X, elements * sizeof(double));
  memcpy(other, X, elements * sizeof(double));
  s.place[0] = A;
  s.place[1] = other;
  GOMP_parallel(run_thread, &s, 0, 0);
}

static void jacobi_sweep(const stencil *s, int step, int i0, int i1, int j0, int j1) {
  int n = s->n;
  const double (*restrict A)[n] = (const void *)s->place[step % 2];
  double (*restrict B)[n] = (void *)s->place[(step + 1) % 2];
  for (int i = i0; i < i1; i++)
    for (int j = j0; j < j1; j++) B[i][j] = 0.2 * (A[i][j] + A[i][j - 1] + A[i][j + 1] + A[i + 1][j] + A[i - 1][j]);
}

static void heat_sweep(const stencil *s, int step, int i0, int i1, int j0, int j1) {
  int n = s->n;
  const double (*restrict A)[n][n] = (const void *)s->place[step % 2];
  double (*restrict B)[n][n] = (void *)s->place[(step + 1) % 2];
  for (int i = i0; i < i1; i++)
    for (int j = j0; j < j1; j++)
      for (int k = 1; k < n - 1; k++)
        B[i][j][k] = 0.125 * (A[i + 1][j][k] - 2.0 * A[i][j][k] + A[i - 1][j][k])
                   + 0.125 * (A[i][j + 1][k] - 2.0 * A[i][j][k] + A[i][j - 1][k])
                   + 0.125 * (A[i][j][k + 1] - 2.0 * A[i][j][k] + A[i][j][k - 1]) + A[i][j][k];
}

/* Block, slabs, width: the fastest of a dozen at PolyBench's LARGE sizes, on a core with 1 MiB of second-level cache. */
#define JACOBI_TILE 32, 64, 2048
#define HEAT_TILE 8, 16, 8

void k_jacobi_2d(int T, int N, const double *X, const double *steps, double *A) {
  run((stencil){N, 2 * T, JACOBI_TILE, .sweep = jacobi_sweep}, (size_t)N * N, X, A);
}
void k_heat_3d(int T, int N, const double *X, const double *steps, double *A) {
  run((stencil){N, 2 * T, HEAT_TILE, .sweep = heat_sweep}, (size_t)N * N * N, X, A);
}
