/* A file whose every read and write takes so many microseconds longer, many at a time.
 *
 *   slow_file BELOW MOUNTPOINT MICROSECONDS THREADS
 *
 * MOUNTPOINT is a file; while this runs, it is BELOW seen through FUSE. Needs root. It speaks the
 * kernel's protocol itself (linux/fuse.h), since what is there to build it from lets only ten
 * requests be worked on at a time. Ends on SIGTERM, or when it is unmounted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PAYLOAD_MAX = 1 << 20, REQUEST_MAX = PAYLOAD_MAX + 4096 };

static int kernel, below;
static struct timespec delay;
static const char *mountpoint;

static void answer(uint64_t unique, int error, const void *body, size_t length) {
	struct fuse_out_header head = {
		.len = sizeof head + (error ? 0 : length), .error = -error, .unique = unique,
	};
	struct iovec parts[2] = { { &head, sizeof head }, { (void *)body, error ? 0 : length } };
	/* ENOENT: whoever asked was interrupted and has gone. */
	if (writev(kernel, parts, 2) < 0 && errno != ENOENT)
		perror("reply");
}

static void attributes(uint64_t unique) {
	struct stat stat;
	struct fuse_attr_out out = { .attr_valid = 3600 };
	if (fstat(below, &stat)) {
		answer(unique, errno, NULL, 0);
		return;
	}
	out.attr.ino = FUSE_ROOT_ID;
	out.attr.size = stat.st_size;
	out.attr.blocks = stat.st_blocks;
	out.attr.mode = S_IFREG | 0600;
	out.attr.nlink = 1;
	out.attr.blksize = 4096;
	answer(unique, 0, &out, sizeof out);
}

static void greet(uint64_t unique, const struct fuse_init_in *in) {
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = in->max_readahead,
		.flags = in->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO),
		.max_background = 1024,
		.congestion_threshold = 1024,
		.max_write = PAYLOAD_MAX,
		.max_pages = PAYLOAD_MAX / 4096,
		.time_gran = 1,
	};
	answer(unique, 0, &out, sizeof out);
}

static void serve(struct fuse_in_header *head, char *buffer) {
	void *in = head + 1;
	switch (head->opcode) {
	case FUSE_INIT:
		greet(head->unique, in);
		break;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		attributes(head->unique);
		break;
	case FUSE_OPEN: {
		struct fuse_open_out out = {
			.fh = 1, /* No page cache: each request of a reader comes here, and waits. */
			.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
		};
		answer(head->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_READ: {
		struct fuse_read_in *read = in;
		nanosleep(&delay, NULL);
		ssize_t got = read->size > PAYLOAD_MAX ? (errno = EINVAL, -1)
			: pread(below, buffer, read->size, read->offset);
		answer(head->unique, got < 0 ? errno : 0, buffer, got < 0 ? 0 : got);
		break;
	}
	case FUSE_WRITE: {
		struct fuse_write_in *write = in;
		nanosleep(&delay, NULL);
		ssize_t put = pwrite(below, write + 1, write->size, write->offset);
		struct fuse_write_out out = { .size = put < 0 ? 0 : put };
		answer(head->unique, put < 0 ? errno : 0, &out, sizeof out);
		break;
	}
	case FUSE_FSYNC:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_ACCESS:
		answer(head->unique, 0, NULL, 0);
		break;
	case FUSE_STATFS: {
		struct fuse_statfs_out out = { .st = { .bsize = 4096, .namelen = 255 } };
		answer(head->unique, 0, &out, sizeof out);
		break;
	}
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(head->unique, ENOSYS, NULL, 0);
	}
}

static void *worker(void *nothing) {
	char *request = malloc(REQUEST_MAX), *buffer = malloc(PAYLOAD_MAX);
	if (!request || !buffer)
		exit(3);
	for (;;) {
		ssize_t length = read(kernel, request, REQUEST_MAX);
		if (length >= (ssize_t)sizeof(struct fuse_in_header))
			serve((struct fuse_in_header *)request, buffer);
		else if (length >= 0 || (errno != EINTR && errno != ENOENT && errno != EAGAIN))
			exit(0); /* Unmounted. */
	}
	return nothing;
}

static void gone(int number) {
	(void)number;
	umount2(mountpoint, MNT_DETACH);
	_exit(0);
}

int main(int count, char **words) {
	if (count != 5) {
		fprintf(stderr, "slow_file BELOW MOUNTPOINT MICROSECONDS THREADS\n");
		return 1;
	}
	long microseconds = atol(words[3]), threads = atol(words[4]);
	mountpoint = words[2];
	delay = (struct timespec){ microseconds / 1000000, microseconds % 1000000 * 1000 };
	below = open(words[1], O_RDWR | O_CLOEXEC);
	if (below < 0)
		return perror(words[1]), 1;
	kernel = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (kernel < 0)
		return perror("/dev/fuse"), 1;
	char options[100];
	snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0,allow_other", kernel);
	if (mount("slow_file", mountpoint, "fuse.slow_file", MS_NOSUID | MS_NODEV, options))
		return perror(mountpoint), 1;
	signal(SIGTERM, gone);
	prctl(PR_SET_TIMERSLACK, 1000);
	for (long i = 1; i < threads; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, worker, NULL))
			gone(0);
	}
	worker(NULL);
}
