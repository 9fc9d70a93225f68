/*
 * fusefs/limits.c - see the header.
 */
#include "fusefs/limits.h"
#include "fusefs/fusefs_int.h"

#include <time.h>

#define PERIOD_MS         1000u
#define LOG_WARNING_BYTES (UINT64_C(1) << 30)
#define MS_IN_SECOND      INT64_C(1000)
#define NS_IN_MS          1000000
#define MIB               (UINT64_C(1) << 20)

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * MS_IN_SECOND + now.tv_nsec / NS_IN_MS;
}

static const char *reason_to_cancel(const struct fusefs_options *options, const struct transaction *transaction,
                                    const struct store_txn_info *info)
{
    const int64_t max_age_ms = (int64_t)options->txn_max_age_s * MS_IN_SECOND;
    if (options->txn_max_age_s != 0 && now_ms() - transaction->began_ms > max_age_ms)
        return "it is older than txn_max_age allows";
    if (options->txn_max_bytes != 0 && info->private_bytes > options->txn_max_bytes)
        return "it has more in blocks of its own than txn_max_bytes allows";
    return NULL;
}

static void warn_of_log(struct transaction *transaction, const struct store_txn_info *info)
{
    if (info->log_bytes < LOG_WARNING_BYTES || transaction->log_warned)
        return;
    transaction->log_warned = true; /* one worker looks at a time */
    diag_log(&transaction->fs->log.diag, DIAG_WARNING,
             "transaction %s of user %u keeps %llu MiB of the log from being removed (said once)", transaction->name,
             transaction->uid, (unsigned long long)(info->log_bytes / MIB));
}

static void look_at(void *arg, struct transaction *transaction)
{
    const struct fusefs *fs = arg;
    struct store_txn_info info;
    transaction_get_info(transaction, &info);
    if (info.state != STORE_TXN_OPEN)
        return;
    const char *reason = reason_to_cancel(fs->options, transaction, &info);
    if (reason != NULL)
        transaction_cancel(transaction, reason);
    else
        warn_of_log(transaction, &info);
}

static void when_due(void *arg);

static void look_at_all(void *arg)
{
    struct fusefs *fs = arg;
    transactions_each(fs, look_at, fs);
    mutex_lock(&fs->transactions_lock);
    fs->limits_watching = fs->transactions != NULL;
    const bool again = fs->limits_watching;
    mutex_unlock(&fs->transactions_lock);
    if (again)
        worker_timer_arm(fs->workers, &fs->limits_timer, PERIOD_MS, when_due, fs);
}

/* On the timers' thread, which must not wait. */
static void when_due(void *arg)
{
    struct fusefs *fs = arg;
    if (workers_submit(fs->workers, look_at_all, fs) != 0)
        worker_timer_arm(fs->workers, &fs->limits_timer, PERIOD_MS, when_due, fs);
}

void limits_watch(struct fusefs *fs)
{
    mutex_lock(&fs->transactions_lock);
    const bool watching = fs->limits_watching;
    fs->limits_watching = true;
    mutex_unlock(&fs->transactions_lock);
    if (!watching)
        worker_timer_arm(fs->workers, &fs->limits_timer, PERIOD_MS, when_due, fs);
}
