"""LLVM IR of the threads that kernels of this process share: the three OpenMP entry points, over a pool that nobody waits for.

A region of `n` numbers is run by whoever comes: the caller takes number 0, offers the others to helpers, and takes each
number that no helper has begun.  It waits only for helpers that are inside the region, so a helper that has no core costs
nothing but its help.  One that comes late finds its offer withdrawn.

Each helper has a *box*: a state, a generation, and the job.  Only who moves the state from idle to `SETUP` writes the job; only
a helper that moves it from `OPEN` to `TAKEN` may read it, and the caller, on whose stack the job is, returns when no box is
taken for it.  Several callers share out the helpers by that, box by box.  Numbers are claimed in bytes of the job: a
helper's own first, whose data its caches may hold, then any that are left.

A helper looks for an offer for `Threads.spin_ns`, or while regions run that have nothing left for it, at most an eighth of what
it worked, as long as a part; then it sleeps in a futex.  Sleepers are not woken for a region that took less than
`Threads.wake_ns` when it last ran with the same sizes (the first word of its block is their digest), unless the region before
it ended less than `spin_ns` ago: waking takes longer than such a region.

All state is in memory that the system clears in a child after a fork (`objects/pool.py`): there, the pool is new.
"""

from __future__ import annotations

from polyc.codegen.objects.pool_layout import (
    ACTIVE,
    ASLEEP,
    AWAITED,
    BOXES,
    CLAIMS,
    CORES,
    FLOAT_MODE,
    FUTEX,
    FUTEX_WAIT,
    FUTEX_WAKE,
    HELPERS,
    IDLE,
    LINE,
    LOCK,
    MASK,
    MEMORY,
    MOST_HELPERS,
    OPEN,
    SETUP,
    SPIN,
    TAKEN,
    Job,
    at,
    load_word,
    offset_of,
)
from polyc.codegen.objects.pool_times import times_ir
from polyc.codegen.writer.words import PAUSES
from polyc.machine import Machine

_FLOAT_MODES = {
    "x86_64": """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal void @save_float_mode(ptr %place) {
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  ret void
}
define internal void @set_float_mode(ptr %place) {
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void
}""",
    "aarch64": """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal void @save_float_mode(ptr %place) {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  store i64 %mode, ptr %place
  ret void
}
define internal void @set_float_mode(ptr %place) {
  %mode = load i64, ptr %place
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}""",
}
"""How numbers are rounded, and whether tiny ones are zeros: helpers compute as their caller does."""


def pool_ir(target: Machine) -> str:
    """The module, for a target whose architecture is in `FUTEX`."""
    name, types, operands = PAUSES[target.architecture]
    return f"""{f'target triple = "{target.triple}"' if target.triple else ""}
@{MEMORY} = external global i8
@name = private constant [13 x i8] c"polyc helper\\00"
declare void @{name}({", ".join(types)})
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @prctl(i32, ...)
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @llvm.umax.i32(i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{_FLOAT_MODES[target.architecture]}

define i32 @omp_get_thread_num() {{
  %key = load i32, ptr @{MEMORY}
  %value = call ptr @pthread_getspecific(i32 %key)
  %word = ptrtoint ptr %value to i64
  %number = trunc i64 %word to i32
  ret i32 %number
}}
define i32 @omp_get_num_threads() {{
  %key = load i32, ptr @{MEMORY}
  %value = call ptr @pthread_getspecific(i32 %key)
  %word = ptrtoint ptr %value to i64
  %high = lshr i64 %word, 32
  %team = trunc i64 %high to i32
  %result = call i32 @llvm.umax.i32(i32 %team, i32 1)
  ret i32 %result
}}

; Runs all numbers of a job that nobody has begun, from %first on, round to the one before it.
define internal void @help(ptr %job, i64 %first) noinline {{
entry:
  %key = load i32, ptr @{MEMORY}
  %function = load ptr, ptr %job
  %data_place = getelementptr i8, ptr %job, i64 {offset_of(Job, "data")}
  %data = load ptr, ptr %data_place
  %n_place = getelementptr i8, ptr %job, i64 {offset_of(Job, "n")}
  %n = load i64, ptr %n_place
  %team = shl i64 %n, 32
  br label %numbers
numbers:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %is_more = icmp ult i64 %i, %n
  br i1 %is_more, label %look, label %done
look:
  %sum = add i64 %first, %i
  %wrapped = sub i64 %sum, %n
  %is_inside = icmp ult i64 %sum, %n
  %number = select i1 %is_inside, i64 %sum, i64 %wrapped
  %offset = add i64 %number, {CLAIMS}
  %claim = getelementptr i8, ptr %job, i64 %offset
  %seen = load atomic i8, ptr %claim monotonic, align 1
  %is_free = icmp eq i8 %seen, 0
  br i1 %is_free, label %take, label %next
take:
  %found = atomicrmw xchg ptr %claim, i8 1 monotonic
  %is_mine = icmp eq i8 %found, 0
  br i1 %is_mine, label %run, label %next
run:
  %word = or i64 %team, %number
  %value = inttoptr i64 %word to ptr
  %ignored = call i32 @pthread_setspecific(i32 %key, ptr %value)
  call void %function(ptr %data)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %numbers
done:
  ret void
}}

define internal ptr @helper(ptr %box) {{
entry:
  %named = call i32 (i32, ...) @prctl(i32 15, ptr @name)
  %at = ptrtoint ptr %box to i64
  %pool = ptrtoint ptr @{MEMORY} to i64
  %distance = sub i64 %at, %pool
  %bytes = sub i64 %distance, {BOXES}
  %own = udiv i64 %bytes, {LINE}
{load_word("cores", CORES)}
{load_word("longest", SPIN)}
  %has_core = icmp ult i64 %own, %cores
  %spin = select i1 %has_core, i64 %longest, i64 0
  br label %awake
awake:
  %since = phi i64 [ 0, %entry ], [ 0, %sleep ], [ %start, %work ], [ %start, %tell ]
  %start = call i64 @now()
  %elapsed = sub i64 %start, %since
  %last_part = lshr i64 %elapsed, 3
  %has_worked = icmp ne i64 %since, 0
  %may_wait = and i1 %has_core, %has_worked
  %worked = select i1 %may_wait, i64 %last_part, i64 0
  %most = call i64 @llvm.umax.i64(i64 %worked, i64 %spin)
  %latest = add i64 %start, %most
  %first = add i64 %start, %spin
  br label %look
look:
  %looks = phi i64 [ 0, %awake ], [ %looks1, %idle ], [ %looks1, %ask ], [ 0, %lie_down ], [ 0, %claim ]
  %deadline = phi i64 [ %first, %awake ], [ %deadline, %idle ], [ %deadline1, %ask ], [ %deadline, %lie_down ],
    [ %deadline, %claim ]
  %word = load atomic i32, ptr %box acquire, align 4
  %state = and i32 %word, {MASK}
  %is_open = icmp eq i32 %state, {OPEN}
  br i1 %is_open, label %claim, label %idle
idle:
  call void @{name}({operands})
  %looks1 = add i64 %looks, 1
  %part = and i64 %looks1, 15
  %is_time = icmp eq i64 %part, 0
  br i1 %is_time, label %ask, label %look
ask:
  %time = call i64 @now()
  %running = load atomic i32, ptr {at(ACTIVE)} monotonic, align 4
  %is_running = icmp ne i32 %running, 0
  %later = add i64 %time, %spin
  %not_after = call i64 @llvm.umin.i64(i64 %later, i64 %latest)
  %deadline1 = select i1 %is_running, i64 %not_after, i64 %deadline
  %is_late = icmp uge i64 %time, %deadline1
  %is_idle = icmp eq i32 %state, {IDLE}
  %is_over = and i1 %is_late, %is_idle
  br i1 %is_over, label %lie_down, label %look
lie_down:
  %asleep = or i32 %word, {ASLEEP}
  %tried = cmpxchg ptr %box, i32 %word, i32 %asleep acq_rel monotonic
  %lies = extractvalue {{i32, i1}} %tried, 1
  br i1 %lies, label %sleep, label %look
sleep:
  %woken = call i64 (i64, ...) @syscall(i64 {FUTEX[target.architecture]}, ptr %box, i32 {FUTEX_WAIT}, i32 %asleep, ptr null)
  %after = load atomic i32, ptr %box acquire, align 4
  %is_still = icmp eq i32 %after, %asleep
  br i1 %is_still, label %sleep, label %awake
claim:
  %taken = add i32 %word, {TAKEN - OPEN}
  %claimed = cmpxchg ptr %box, i32 %word, i32 %taken acq_rel monotonic
  %has_it = extractvalue {{i32, i1}} %claimed, 1
  br i1 %has_it, label %work, label %look
work:
  %job_place = getelementptr i8, ptr %box, i64 8
  %job = load ptr, ptr %job_place
  %mode_place = getelementptr i8, ptr %job, i64 {FLOAT_MODE}
  call void @set_float_mode(ptr %mode_place)
  call void @help(ptr %job, i64 %own)
  %free = and i32 %word, {~MASK}
  %last = atomicrmw xchg ptr %box, i32 %free acq_rel
  %last_state = and i32 %last, {MASK}
  %is_awaited = icmp eq i32 %last_state, {AWAITED}
  br i1 %is_awaited, label %tell, label %awake
tell:
  %told = call i64 (i64, ...) @syscall(i64 {FUTEX[target.architecture]}, ptr %box, i32 {FUTEX_WAKE}, i32 1)
  br label %awake
}}

; Makes helpers until there are as many as wanted, unless another thread is at it or the system refuses: how many there are.
define internal i64 @grow(i64 %wanted) noinline {{
entry:
  %all = alloca [16 x i64], align 16
  %before = alloca [16 x i64], align 16
  %thread = alloca i64, align 8
  %tried = cmpxchg ptr {at(LOCK)}, i32 0, i32 1 acq_rel monotonic
  %has_it = extractvalue {{i32, i1}} %tried, 1
  br i1 %has_it, label %begin, label %done
begin:
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %hidden = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)     ; signals are for the threads of the program
  %have = load atomic i32, ptr {at(HELPERS)} acquire, align 4
  %first = zext i32 %have to i64
  br label %more
more:
  %k = phi i64 [ %first, %begin ], [ %k1, %made ]
  %is_less = icmp ult i64 %k, %wanted
  br i1 %is_less, label %make, label %finish
make:
  %k1 = add i64 %k, 1
  %line = mul i64 %k1, {LINE}
  %offset = add i64 %line, {BOXES}
  %box = getelementptr i8, ptr @{MEMORY}, i64 %offset
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @helper, ptr %box)
  %is_made = icmp eq i32 %status, 0
  br i1 %is_made, label %made, label %finish
made:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %n = trunc i64 %k1 to i32
  store atomic i32 %n, ptr {at(HELPERS)} release, align 4
  br label %more
finish:
  %shown = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  store atomic i32 0, ptr {at(LOCK)} release, align 4
  br label %done
done:
  %found = load atomic i32, ptr {at(HELPERS)} acquire, align 4
  %result = zext i32 %found to i64
  ret i64 %result
}}

{times_ir()}
; Returns when the helper of a box is not, and will not be, inside the job.
define internal void @leave(ptr %box, ptr %job) noinline {{
entry:
{load_word("longest", SPIN)}
  %job_place = getelementptr i8, ptr %box, i64 8
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %looks1, %spin ], [ %looks1, %ask ], [ 0, %withdraw ], [ 0, %mark ], [ 0, %sleep ]
  %deadline = phi i64 [ 0, %entry ], [ %deadline, %spin ], [ %deadline1, %ask ], [ %deadline, %withdraw ],
    [ %deadline, %mark ], [ 0, %sleep ]
  %word = load atomic i32, ptr %box acquire, align 4
  %state = and i32 %word, {MASK}
  %is_offered = icmp uge i32 %state, {OPEN}
  br i1 %is_offered, label %compare, label %done
compare:
  %whose = load atomic ptr, ptr %job_place acquire, align 8     ; another's: what the helper wrote must be seen as well
  %is_mine = icmp eq ptr %whose, %job
  br i1 %is_mine, label %mine, label %done
mine:
  %is_open = icmp eq i32 %state, {OPEN}
  br i1 %is_open, label %withdraw, label %spin
withdraw:
  %free = and i32 %word, {~MASK}
  %tried = cmpxchg ptr %box, i32 %word, i32 %free acq_rel monotonic
  %is_withdrawn = extractvalue {{i32, i1}} %tried, 1
  br i1 %is_withdrawn, label %done, label %look
spin:
  call void @{name}({operands})
  %looks1 = add i64 %looks, 1
  %part = and i64 %looks1, 15
  %is_time = icmp eq i64 %part, 0
  br i1 %is_time, label %ask, label %look
ask:
  %time = call i64 @now()
  %is_first = icmp eq i64 %deadline, 0
  %later = add i64 %time, %longest
  %deadline1 = select i1 %is_first, i64 %later, i64 %deadline
  %is_late = icmp sge i64 %time, %deadline1
  br i1 %is_late, label %give_way, label %look
give_way:                                             ; the helper may be waiting for this very core
  %awaited = or i32 %word, {AWAITED}
  %is_marked = icmp eq i32 %state, {AWAITED}
  br i1 %is_marked, label %sleep, label %mark
mark:
  %marked = cmpxchg ptr %box, i32 %word, i32 %awaited acq_rel monotonic
  %has_it = extractvalue {{i32, i1}} %marked, 1
  br i1 %has_it, label %sleep, label %look
sleep:
  %woken = call i64 (i64, ...) @syscall(i64 {FUTEX[target.architecture]}, ptr %box, i32 {FUTEX_WAIT}, i32 %awaited, ptr null)
  br label %look
done:
  ret void
}}

define void @GOMP_parallel(ptr %function, ptr %data, i32 %threads, i32 %flags) {{
entry:
  %least = call i32 @llvm.umax.i32(i32 %threads, i32 1)
  %n = zext i32 %least to i64
  %key = load i32, ptr @{MEMORY}
  %before = call ptr @pthread_getspecific(i32 %key)
  %entered = atomicrmw add ptr {at(ACTIVE)}, i32 1 monotonic
  %more = add i64 %n, {CLAIMS + LINE - 1}
  %size = and i64 %more, {-LINE}
  %job = alloca i8, i64 %size, align {LINE}
  call void @llvm.memset.p0.i64(ptr align {LINE} %job, i8 0, i64 %size, i1 false)
  %data_place = getelementptr i8, ptr %job, i64 {offset_of(Job, "data")}
  %n_place = getelementptr i8, ptr %job, i64 {offset_of(Job, "n")}
  store ptr %function, ptr %job
  store ptr %data, ptr %data_place
  store i64 %n, ptr %n_place
  %mode_place = getelementptr i8, ptr %job, i64 {FLOAT_MODE}
  call void @save_float_mode(ptr %mode_place)
  %others = sub i64 %n, 1
  %wanted = call i64 @llvm.umin.i64(i64 %others, i64 {MOST_HELPERS})
  %have32 = load atomic i32, ptr {at(HELPERS)} acquire, align 4
  %have = zext i32 %have32 to i64
  %is_lacking = icmp ult i64 %have, %wanted
  br i1 %is_lacking, label %grow, label %begin
grow:
  %grown = call i64 @grow(i64 %wanted)
  br label %begin
begin:
  %there = phi i64 [ %have, %entry ], [ %grown, %grow ]
  %helpers = call i64 @llvm.umin.i64(i64 %there, i64 %wanted)
  br label %offers
offers:                                               ; %start: when a sleeper was found, 0 where none was
  %k = phi i64 [ 1, %begin ], [ %k1, %offered ]
  %start = phi i64 [ 0, %begin ], [ %start2, %offered ]
  %wakes = phi i1 [ false, %begin ], [ %wakes2, %offered ]
  %is_more = icmp ule i64 %k, %helpers
  br i1 %is_more, label %offer, label %work
offer:
  %line = mul i64 %k, {LINE}
  %offset = add i64 %line, {BOXES}
  %box = getelementptr i8, ptr @{MEMORY}, i64 %offset
  %word = load atomic i32, ptr %box acquire, align 4
  %state = and i32 %word, {MASK}
  switch i32 %state, label %offered [ i32 {IDLE}, label %seize
                                      i32 {ASLEEP}, label %sleeper ]
sleeper:
  %is_first = icmp eq i64 %start, 0
  br i1 %is_first, label %decide, label %decided
decide:
  %time = call i64 @now()
  %hash = call i64 @identify(ptr %function, ptr %data)
  %is_worth = call i1 @is_worth_waking(i64 %hash, i64 %time)
  br label %decided
decided:
  %start1 = phi i64 [ %start, %sleeper ], [ %time, %decide ]
  %wakes1 = phi i1 [ %wakes, %sleeper ], [ %is_worth, %decide ]
  br i1 %wakes1, label %seize, label %offered
seize:
  %start3 = phi i64 [ %start, %offer ], [ %start1, %decided ]
  %wakes3 = phi i1 [ %wakes, %offer ], [ %wakes1, %decided ]
  %old = and i32 %word, {~MASK}
  %base = add i32 %old, {MASK + 1}
  %setup = or i32 %base, {SETUP}
  %tried = cmpxchg ptr %box, i32 %word, i32 %setup acq_rel monotonic
  %has_it = extractvalue {{i32, i1}} %tried, 1
  br i1 %has_it, label %post, label %offer               ; it may just have lain down
post:
  %job_place = getelementptr i8, ptr %box, i64 8
  store atomic ptr %job, ptr %job_place release, align 8
  %open = or i32 %base, {OPEN}
  store atomic i32 %open, ptr %box release, align 4
  %is_asleep = icmp eq i32 %state, {ASLEEP}
  br i1 %is_asleep, label %wake, label %offered
wake:
  %woken = call i64 (i64, ...) @syscall(i64 {FUTEX[target.architecture]}, ptr %box, i32 {FUTEX_WAKE}, i32 1)
  br label %offered
offered:
  %start2 = phi i64 [ %start, %offer ], [ %start1, %decided ], [ %start3, %post ], [ %start3, %wake ]
  %wakes2 = phi i1 [ %wakes, %offer ], [ %wakes1, %decided ], [ %wakes3, %post ], [ %wakes3, %wake ]
  %k1 = add i64 %k, 1
  br label %offers
work:
  call void @help(ptr %job, i64 0)
  br label %joins
joins:
  %j = phi i64 [ 1, %work ], [ %j1, %join ]
  %is_left = icmp ule i64 %j, %helpers
  br i1 %is_left, label %join, label %joined
join:
  %join_line = mul i64 %j, {LINE}
  %join_offset = add i64 %join_line, {BOXES}
  %join_box = getelementptr i8, ptr @{MEMORY}, i64 %join_offset
  call void @leave(ptr %join_box, ptr %job)
  %j1 = add i64 %j, 1
  br label %joins
joined:
  %left = atomicrmw sub ptr {at(ACTIVE)}, i32 1 monotonic
  %ignored = call i32 @pthread_setspecific(i32 %key, ptr %before)
  %is_timed = icmp ne i64 %start, 0
  br i1 %is_timed, label %note, label %done
note:
  %own_hash = call i64 @identify(ptr %function, ptr %data)
  call void @note_time(i64 %own_hash, i64 %start, i1 %wakes)
  br label %done
done:
  ret void
}}
"""
