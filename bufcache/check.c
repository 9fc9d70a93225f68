/*
 * bufcache/check.c - do the structures of the cache agree with each other?
 *
 * For tests and debugging, while nothing else runs: it looks at everything without a lock.
 */
#include "bufcache/bufcache_int.h"

#include <errno.h>
#include <inttypes.h>
#include <utlist.h>

struct tally {
    uint32_t free, listed, hashed, dead, private_frames, dirty, reply;
};

static int complain(struct bufcache *cache, const char *what, uint32_t index, uint64_t got, uint64_t want)
{
    diag_log(cache->options.diag, DIAG_ERROR, "bufcache_check: frame %" PRIu32 ": %s: got %" PRIu64 ", want %" PRIu64,
             index, what, got, want);
    return -EINVAL;
}

static int check_free_list(struct bufcache *cache, struct tally *tally)
{
    uint32_t index = cache->pool.free_head;
    while (index != FRAME_NONE && tally->listed <= cache->frame_count) {
        if (state_load(&cache->tags[index]) != STATE_FREE)
            return complain(cache, "state on the free list", index, state_load(&cache->tags[index]), STATE_FREE);
        tally->listed++;
        index = cache->frames[index].free_next;
    }
    return tally->listed == cache->pool.free_count
               ? 0
               : complain(cache, "length of the free list", FRAME_NONE, tally->listed, cache->pool.free_count);
}

/* CACHE-1 and the rules of the state word. */
static int check_state(struct bufcache *cache, uint32_t index, uint32_t state)
{
    if (state & (STATE_FREE | STATE_DEAD))
        return complain(cache, "free or dead in a bucket", index, state, 0);
    if (!(state & (STATE_DIRTY | STATE_WRITTEN | STATE_READING)))
        return complain(cache, "neither dirty nor written", index, state, STATE_DIRTY);
    if (state & STATE_LATCHED && (state & (STATE_WRITTEN | STATE_WRITING) || !(state & STATE_PIN_MASK)))
        return complain(cache, "latched though written or unpinned", index, state, STATE_LATCHED);
    if (state & STATE_READING && (state & (STATE_DIRTY | STATE_WRITING) || !(state & STATE_PIN_MASK)))
        return complain(cache, "being read though dirty or unpinned", index, state, STATE_READING);
    return 0;
}

static int check_page(struct bufcache *cache, uint32_t index)
{
    const struct frame *frame = &cache->frames[index];
    const struct page_header *header = (const struct page_header *)frame_bytes(cache, index);
    struct frame_tag *tag = &cache->tags[index];
    if (frame->relation == NULL || frame->relation->rel != atomic_load(&tag->rel))
        return complain(cache, "relation", index, frame->relation == NULL ? 0 : frame->relation->rel,
                        atomic_load(&tag->rel));
    if (state_load(tag) & STATE_READING)
        return 0;
    if (le64_get(header->rel) != atomic_load(&tag->rel))
        return complain(cache, "relation in the page", index, le64_get(header->rel), atomic_load(&tag->rel));
    if (le32_get(header->block) != atomic_load(&tag->block))
        return complain(cache, "block in the page", index, le32_get(header->block), atomic_load(&tag->block));
    if (le64_get(header->birth) != atomic_load(&frame->birth))
        return complain(cache, "birth in the page", index, le64_get(header->birth), atomic_load(&frame->birth));
    return 0;
}

static int check_bucket(struct bufcache *cache, uint32_t bucket, struct tally *tally)
{
    for (uint32_t i = cache->buckets[bucket]; i != FRAME_NONE; i = cache->frames[i].hash_next) {
        struct frame_tag *tag = &cache->tags[i];
        const uint32_t right = bucket_of(cache, atomic_load(&tag->rel), atomic_load(&tag->block));
        if (right != bucket)
            return complain(cache, "bucket", i, bucket, right);
        int rc = check_state(cache, i, state_load(tag));
        if (rc == 0)
            rc = check_page(cache, i);
        if (rc < 0)
            return rc;
        if (++tally->hashed > cache->frame_count)
            return complain(cache, "frames in buckets", i, tally->hashed, cache->frame_count);
        cache->frames[i].relation->checked++;
    }
    return 0;
}

static int check_tags(struct bufcache *cache, struct tally *tally)
{
    for (uint32_t i = 0; i < cache->frame_count; i++) {
        const uint32_t state = state_load(&cache->tags[i]);
        const bool hashed = atomic_load(&cache->tags[i].rel) != REL_NONE;
        tally->dirty += (state & STATE_DIRTY) != 0;
        tally->reply += (state & STATE_REPLY_MASK) != 0;
        tally->free += (state & STATE_FREE) != 0;
        tally->dead += (state & STATE_DEAD) != 0;
        tally->private_frames += state == 0;
        if (state & STATE_DEAD && !(state & STATE_PINNED))
            return complain(cache, "dead and not pinned", i, state, 0);
        if (hashed && (state == 0 || state & (STATE_FREE | STATE_DEAD)))
            return complain(cache, "tag of a free or dead frame", i, state, 0);
    }
    return 0;
}

/* CACHE-5. */
static int check_resident(struct bufcache *cache)
{
    struct relation *relation, *next;
    HASH_ITER(hh, cache->registry.relations, relation, next)
    {
        if (relation->checked != relation_resident(relation)) {
            diag_log(cache->options.diag, DIAG_ERROR, "bufcache_check: %s: resident: got %" PRIu32 ", want %" PRIu32,
                     relation->path, relation_resident(relation), relation->checked);
            return -EINVAL;
        }
        if (atomic_load(&relation->refs) < relation->checked + relation->listed)
            return complain(cache, "references", FRAME_NONE, atomic_load(&relation->refs), relation->checked);
    }
    return 0;
}

static int check_registry(struct bufcache *cache)
{
    const struct registry *registry = &cache->registry;
    const struct relation *relation;
    uint32_t open_files = 0;
    DL_FOREACH2(registry->lru, relation, lru_next)
    {
        open_files += relation->file != NULL;
    }
    if (open_files != registry->open_files || open_files > registry->max_open_files)
        return complain(cache, "open files", FRAME_NONE, open_files, registry->open_files);
    return 0;
}

static int check_sums(struct bufcache *cache, const struct tally *tally)
{
    const uint32_t sum = tally->free + tally->hashed + tally->dead + tally->private_frames;
    if (sum != cache->frame_count)
        return complain(cache, "frames accounted for", FRAME_NONE, sum, cache->frame_count);
    if (tally->free != tally->listed)
        return complain(cache, "free frames", FRAME_NONE, tally->free, tally->listed);
    if (tally->dirty != atomic_load(&cache->pool.dirty))
        return complain(cache, "dirty frames", FRAME_NONE, atomic_load(&cache->pool.dirty), tally->dirty);
    if (tally->reply != atomic_load(&cache->pool.reply_frames))
        return complain(cache, "frames of replies", FRAME_NONE, atomic_load(&cache->pool.reply_frames), tally->reply);
    if (cache->pool.quota_used > cache->pool.quota_limit)
        return complain(cache, "quota", FRAME_NONE, cache->pool.quota_used, cache->pool.quota_limit);
    return 0;
}

int bufcache_check(struct bufcache *cache)
{
    struct tally tally = {0};
    struct relation *relation, *next;
    HASH_ITER(hh, cache->registry.relations, relation, next)
    {
        relation->checked = 0;
    }
    int rc = check_free_list(cache, &tally);
    for (uint32_t bucket = 0; rc == 0 && bucket <= cache->bucket_mask; bucket++)
        rc = check_bucket(cache, bucket, &tally);
    if (rc == 0)
        rc = check_tags(cache, &tally);
    if (rc == 0)
        rc = check_resident(cache);
    if (rc == 0)
        rc = check_registry(cache);
    return rc < 0 ? rc : check_sums(cache, &tally);
}
