/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coroutines and the clock.
 *
  * 1. Time passes only where a task sleeps, and a microsecond at each read of the
  *    clock, so that no task can spin.
  * 2. A task that reads the clock may be interrupted before it reads, never after: what
 *    it does next with what it saw happens at that time.
  * 3. No task sleeps while holding a lock.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define STACK_SIZE ((size_t)256 * 1024)

/* A processor that does something else for a while, and how often. */
#define STALLS 5
#define STALL_MAX_US 3000

struct world world;
struct task tasks[TASKS_MAX];
struct task *current;
static ucontext_t scheduler;

uint64_t draw(void)
{
	uint64_t z = (world.random += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

int64_t between(int64_t low, int64_t high)
{
	return low + (int64_t)(draw() % (uint64_t)(high - low + 1));
}

bool chance(int thousandths)
{
	return thousandths > 0 && between(1, 1000) <= thousandths;
}

void trace(const char *format, ...)
{
	va_list args;

	if (!world.verbose)
		return;
	printf("%12.6f ", (double)world.now_us / 1e6);
	if (current)
		printf("%d.%d %-10s ", current->process->number, current->process->life,
		       current->worker ? current->worker->name : "main");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static void run_body(void)
{
	struct task *task = current;

	task->body(task->argument);
	task->done = true;
	for (size_t i = 0; i < TASKS_MAX; i++) {
		if (tasks[i].used && tasks[i].waits_for == task)
			tasks[i].wake_us = world.now_us;
	}
	sleep_until(NEVER, NULL);
}

static void prepare(ucontext_t *context, char *stack)
{
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = STACK_SIZE;
	makecontext(context, run_body, 0);
}

struct task *task_begin(struct process *process, void *(*body)(void *), void *argument)
{
	struct task *task = tasks;
	char *stack;

	while (task->used && task < &tasks[TASKS_MAX - 1])
		task++;
	ENSURE(!task->used, "too many tasks");
	stack = task->stack;
	if (!stack)
		stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	ENSURE(stack != MAP_FAILED, "no memory");
#if defined(__SANITIZE_ADDRESS__)
	/* The task that had it before may have been killed. */
	__asan_unpoison_memory_region(stack, STACK_SIZE);
#endif
	*task = (struct task){ .process = process,
			       .body = body,
			       .argument = argument,
			       .wake_us = world.now_us + between(0, 100),
			       .used = true,
			       .stack = stack };
	prepare(&task->context, stack);
	return task;
}

void task_end(struct task *task)
{
	task->used = false;
}

void sleep_until(int64_t wake_us, const struct pr_stop *stop)
{
	struct task *task = current;

	ENSURE(task->held == 0, "a task waits and holds a lock");
	task->wake_us = wake_us;
	task->stop = stop;
	swapcontext(&task->context, &scheduler);
	task->stop = NULL;
	task->waits_for = NULL;
}

void sleep_for(int64_t us)
{
	process_step();
	sleep_until(world.now_us + us, NULL);
}

int __real_poll(struct pollfd *fds, nfds_t count, int ms);

static unsigned writes; /* by all tasks */

/* Only a write can have changed the answer. */
static bool polled(struct task *task)
{
	if (!task->fds || task->writes == writes)
		return false;
	task->writes = writes;
	return __real_poll(task->fds, task->fd_count, 0) > 0;
}

static int64_t wakes_at(struct task *task)
{
	int64_t wake_us = task->wake_us;

	if (wake_us > world.now_us && polled(task))
		task->wake_us = wake_us = world.now_us;

	if (task->stop && wake_us > world.now_us && pr_stop_requested(task->stop))
		wake_us = world.now_us;
	if (wake_us < task->process->frozen_until_us)
		wake_us = task->process->frozen_until_us;
	return wake_us;
}

bool run_next(int64_t until_us)
{
	struct task *next = NULL;
	int64_t next_us = until_us;

	for (size_t i = 0; i < TASKS_MAX; i++) {
		int64_t wake_us = tasks[i].used && !tasks[i].done ? wakes_at(&tasks[i]) : NEVER;

		if (wake_us < next_us) {
			next = &tasks[i];
			next_us = wake_us;
		}
	}
	if (!next)
		return false;
	if (next_us > world.now_us)
		world.now_us = next_us;
	current = next;
	swapcontext(&scheduler, &next->context);
	current = NULL;
	world.steps++;
	return true;
}

/* In the place of the clock, randomness and threads; the linker's --wrap names them so. */

int64_t __wrap_pr_mono_us(void);
int64_t __wrap_pr_now_us(void);
bool __wrap_pr_stop_wait(const struct pr_stop *stop, int64_t ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*body)(void *),
			  void *argument);
int __wrap_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);

int64_t __wrap_pr_mono_us(void)
{
	if (current && current->held == 0) {
		process_step();
		if (world.stalls && chance(STALLS))
			sleep_for(between(1, STALL_MAX_US));
	}
	return ++world.now_us;
}

int64_t __wrap_pr_now_us(void)
{
	return world.now_us + 1000000 * SECOND;
}

bool __wrap_pr_stop_wait(const struct pr_stop *stop, int64_t ms)
{
	if (!pr_stop_requested(stop)) {
		process_step();
		sleep_until(world.now_us + ms * 1000, stop);
	}
	return pr_stop_requested(stop);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
	int ready;

	process_step();
	ready = __real_poll(fds, count, 0);
	if (ready == 0) {
		current->fds = fds;
		current->fd_count = count;
		current->writes = writes;
		sleep_until(world.now_us + ms * 1000LL, NULL);
		current->fds = NULL;
		ready = __real_poll(fds, count, 0);
	}
	return ready;
}

/* Another task has written what a task polls for. */
ssize_t __wrap_write(int fd, const void *data, size_t size)
{
	writes++;
	return __real_write(fd, data, size);
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
	unsigned char *at = out;

	(void)flags;
	for (size_t i = 0; i < size; i++)
		at[i] = (unsigned char)draw();
	return (ssize_t)size;
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*body)(void *),
			  void *argument)
{
	struct task *task = task_begin(current->process, body, argument);

	(void)attr;
	task->worker = argument;
	*ret = (pthread_t)(task - tasks);
	return 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret)
{
	struct task *task = &tasks[thread];

	(void)ret;
	while (!task->done) {
		current->waits_for = task;
		sleep_until(NEVER, NULL);
	}
	task_end(task);
	return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
	(void)thread, (void)name;
	return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	(void)lock;
	if (current)
		current->held++;
	return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
	(void)lock;
	if (current)
		current->held--;
	return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	__wrap_pthread_mutex_unlock(lock);
	current->waits_for = cond;
	sleep_until(NEVER, NULL);
	return __wrap_pthread_mutex_lock(lock);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	for (size_t i = 0; i < TASKS_MAX; i++) {
		if (tasks[i].used && tasks[i].waits_for == cond)
			tasks[i].wake_us = world.now_us;
	}
	return 0;
}
