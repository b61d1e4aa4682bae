/* What Horovod asks of MPI, counted from outside: preloaded, it stands between the two (the profiling interface, PMPI).
 *
 * Horovod's background thread is the only one that calls these functions. Control is what coordinates: the bitvector
 * (allreduce of AND and OR), requests gathered at rank 0, and responses broadcast; data is every other allreduce.
 * CPU time between two calls is the thread's own (waiting inside MPI does not count). Between control and control it is
 * coordination, of which with the bitvector only cycles are left in which nothing was ready everywhere; between control
 * and data it is packing, and the choice of what to pack where that comes from the cache, on every rank; after data it is
 * unpacking and callbacks (and the packing for the next operation, where one follows directly).
 *
 * Open MPI waits by asking again and again, and yields the core in between (mpi_yield_when_idle), which the scheduler
 * gives to another rank for milliseconds. With PMPI_SLEEP in the environment a waiting thread sleeps instead, so that
 * more ranks than cores do not slow each other down.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BITVECTOR, GATHER, BROADCAST, DATA, KINDS };
enum { CONTROL_NS = 2 * KINDS, PACK_NS, UNPACK_NS, COUNTERS };

static _Atomic long long counters[COUNTERS]; /* calls of each kind, bytes of each kind, then times */
static int sleeps; /* where a thread waits */
static _Thread_local int last = -1;
static _Thread_local long long left;

void pmpi_read(long long *out) {
    for (int i = 0; i < COUNTERS; i++)
        out[i] = counters[i];
}

__attribute__((constructor)) static void begin(void) { sleeps = getenv("PMPI_SLEEP") != NULL; }

int sched_yield(void) {
    static _Thread_local int precise;
    if (!sleeps)
        return (int)syscall(SYS_sched_yield);
    if (!precise)
        precise = prctl(PR_SET_TIMERSLACK, 1000) == 0; /* 50 µs otherwise */
    return nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static long long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void enter(int kind, long long bytes) {
    long long now = cpu_ns();
    if (last >= 0) {
        counters[last == DATA ? UNPACK_NS : kind == DATA ? PACK_NS : CONTROL_NS] += now - left;
    }
    counters[kind]++;
    counters[KINDS + kind] += bytes;
    last = kind;
}

static int leave(int result) {
    left = cpu_ns();
    return result;
}

static long long size_of(MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    return size;
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    enter(op == MPI_BAND || op == MPI_BOR ? BITVECTOR : DATA, count * size_of(type));
    return leave(PMPI_Allreduce(from, to, count, type, op, comm));
}

/* Bytes are those that arrive at the root. */
int MPI_Gather(const void *from, int sent, MPI_Datatype sent_type, void *to, int received, MPI_Datatype type, int root,
               MPI_Comm comm) {
    int rank, size;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    enter(GATHER, rank == root ? (size - 1) * received * size_of(type) : 0);
    return leave(PMPI_Gather(from, sent, sent_type, to, received, type, root, comm));
}

int MPI_Gatherv(const void *from, int sent, MPI_Datatype sent_type, void *to, const int *received, const int *places,
                MPI_Datatype type, int root, MPI_Comm comm) {
    int rank, size;
    long long bytes = 0;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    for (int i = 0; rank == root && i < size; i++)
        bytes += i == root ? 0 : received[i] * size_of(type);
    enter(GATHER, bytes);
    return leave(PMPI_Gatherv(from, sent, sent_type, to, received, places, type, root, comm));
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    enter(BROADCAST, count * size_of(type));
    return leave(PMPI_Bcast(buffer, count, type, root, comm));
}
