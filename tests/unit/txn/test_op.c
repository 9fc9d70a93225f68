/*
 * tests/unit/txn/test_op.c - operation records as bytes: every type comes back as it was, and what is no record is refused.
 */
#include "txn/op.h"

#include "base/bytes.h"
#include "tests/lib/test_support.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BYTES_MAX     300u
#define RECORD_MAX    2048u
#define ROUNDS        200u
#define RANDOM_ROUNDS 20000u

static const enum op_type all_types[] = {
#define OP(name, code, fields, text) OP_##name,
#include "txn/op.def"
};

enum kind { KIND_U64, KIND_I64, KIND_U32, KIND_BYTES };

static const struct {
    enum kind kind;
    size_t offset;
} fields[OP_FIELD_COUNT] = {
#define OP_FIELD(name, member, kind) {KIND_##kind, offsetof(struct op_record, member)},
#include "txn/op.def"
};

/* A record of this type with random values in all its fields; its bytes lie in `store`. */
static struct op_record random_record(struct test_random *random, enum op_type type, uint8_t *store)
{
    struct op_record op = {.type = type, .txn = test_random_u64(random), .time_ns = (int64_t)test_random_u64(random)};
    for (const uint8_t *field = op_type_fields(type); *field != OP_FIELD_COUNT; field++) {
        void *member = (char *)&op + fields[*field].offset;
        if (fields[*field].kind == KIND_BYTES) {
            const size_t size = test_random_chance(random, 20) ? 0 : test_random_below(random, BYTES_MAX);
            test_random_bytes(random, store, size);
            *(struct op_bytes *)member = (struct op_bytes){.data = store, .size = size};
            store += size;
        } else {
            const uint64_t value = test_random_u64(random);
            memcpy(member, &value, fields[*field].kind == KIND_U32 ? 4 : 8);
        }
    }
    return op;
}

static void assert_same_record(const struct op_record *got, const struct op_record *want)
{
    assert_int_equal(got->type, want->type);
    assert_int_equal(got->txn, want->txn);
    assert_true(got->time_ns == want->time_ns);
    for (size_t i = 0; i < OP_FIELD_COUNT; i++) { /* also those that the type does not carry: zero */
        const void *got_member = (const char *)got + fields[i].offset;
        const void *want_member = (const char *)want + fields[i].offset;
        if (fields[i].kind != KIND_BYTES) {
            assert_memory_equal(got_member, want_member, fields[i].kind == KIND_U32 ? 4 : 8);
            continue;
        }
        const struct op_bytes *got_bytes = got_member;
        const struct op_bytes *want_bytes = want_member;
        assert_int_equal(got_bytes->size, want_bytes->size);
        if (got_bytes->size > 0) {
            assert_memory_equal(got_bytes->data, want_bytes->data, got_bytes->size);
        }
    }
}

/* Decodes from memory of exactly this size, so that a sanitizer sees every byte too far. */
static int decode_exactly(const void *bytes, size_t size, struct op_record *out_op, size_t *out_size,
                          uint8_t **out_copy)
{
    *out_copy = malloc(size > 0 ? size : 1);
    assert_non_null(*out_copy);
    memcpy(*out_copy, bytes, size);
    return op_record_decode(size > 0 ? *out_copy : *out_copy + 1, size, out_op, out_size);
}

static void record_of_every_type_comes_back_as_it_was(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ARRAY_COUNT(all_types); i++) {
            uint8_t store[4 * BYTES_MAX];
            uint8_t encoded[RECORD_MAX];
            const struct op_record op = random_record(&random, all_types[i], store);
            const size_t size = op_record_size(&op);
            assert_in_range(size, OP_RECORD_HEADER_SIZE, sizeof encoded);
            op_record_encode(&op, encoded);
            struct op_record got;
            size_t got_size = 0;
            uint8_t *copy = NULL;
            assert_int_equal(decode_exactly(encoded, size, &got, &got_size, &copy), 0);
            assert_int_equal(got_size, size);
            assert_same_record(&got, &op);
            free(copy);
        }
    }
}

static void record_followed_by_others_takes_only_its_own_bytes(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint8_t store[2][4 * BYTES_MAX];
        uint8_t encoded[2 * RECORD_MAX];
        struct op_record op[2];
        size_t size[2];
        for (unsigned i = 0; i < 2; i++) {
            const enum op_type type = all_types[test_random_below(&random, ARRAY_COUNT(all_types))];
            op[i] = random_record(&random, type, store[i]);
            size[i] = op_record_size(&op[i]);
        }
        op_record_encode(&op[0], encoded);
        op_record_encode(&op[1], encoded + size[0]);
        struct op_record got;
        size_t got_size = 0;
        assert_int_equal(op_record_decode(encoded, size[0] + size[1], &got, &got_size), 0);
        assert_int_equal(got_size, size[0]);
        assert_same_record(&got, &op[0]);
        assert_int_equal(op_record_decode(encoded + got_size, size[1], &got, &got_size), 0);
        assert_same_record(&got, &op[1]);
    }
}

static void record_cut_anywhere_is_refused(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (size_t i = 0; i < ARRAY_COUNT(all_types); i++) {
        uint8_t store[4 * BYTES_MAX];
        uint8_t encoded[RECORD_MAX];
        const struct op_record op = random_record(&random, all_types[i], store);
        const size_t size = op_record_size(&op);
        op_record_encode(&op, encoded);
        for (size_t cut = 0; cut < size; cut++) {
            struct op_record got;
            size_t got_size = 0;
            uint8_t *copy = NULL;
            assert_int_equal(decode_exactly(encoded, cut, &got, &got_size, &copy), -EBADMSG);
            free(copy);
            if (cut >= OP_RECORD_HEADER_SIZE) { /* also when its own size says that it is whole */
                uint8_t shorter[RECORD_MAX];
                memcpy(shorter, encoded, size);
                const le32 raw = le32_of((uint32_t)cut);
                memcpy(shorter, &raw, sizeof raw);
                assert_int_equal(op_record_decode(shorter, cut, &got, &got_size), -EBADMSG);
            }
        }
    }
}

static void record_that_is_longer_than_its_fields_is_refused(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (size_t i = 0; i < ARRAY_COUNT(all_types); i++) {
        uint8_t store[4 * BYTES_MAX];
        uint8_t encoded[RECORD_MAX] = {0};
        const struct op_record op = random_record(&random, all_types[i], store);
        const size_t size = op_record_size(&op);
        op_record_encode(&op, encoded);
        const le32 raw = le32_of((uint32_t)size + 1);
        memcpy(encoded, &raw, sizeof raw);
        struct op_record got;
        size_t got_size = 0;
        assert_int_equal(op_record_decode(encoded, size + 1, &got, &got_size), -EBADMSG);
    }
}

static void record_of_unknown_type_is_refused(void **state)
{
    (void)state;
    uint8_t encoded[RECORD_MAX] = {0};
    const uint32_t types[] = {0, 14, 63, 64, 255, 256, 257, UINT32_C(0x01000001), UINT32_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        if (types[i] < 64 && op_type_fields((enum op_type)types[i]) != NULL) {
            continue;
        }
        const le32 size = le32_of(OP_RECORD_HEADER_SIZE);
        const le32 type = le32_of(types[i]);
        memcpy(encoded, &size, sizeof size);
        memcpy(encoded + 4, &type, sizeof type);
        struct op_record got;
        size_t got_size = 0;
        assert_int_equal(op_record_decode(encoded, OP_RECORD_HEADER_SIZE, &got, &got_size), -EBADMSG);
    }
}

/* Whatever is decoded can be printed and encoded again, into the same bytes. */
static void check_whatever_decodes(const uint8_t *bytes, size_t size)
{
    struct op_record got;
    size_t got_size = 0;
    uint8_t *copy = NULL;
    const int rc = decode_exactly(bytes, size, &got, &got_size, &copy);
    if (rc == 0) {
        assert_in_range(got_size, OP_RECORD_HEADER_SIZE, size);
        assert_int_equal(op_record_size(&got), got_size);
        uint8_t again[RECORD_MAX];
        assert_in_range(got_size, 0, sizeof again);
        op_record_encode(&got, again);
        assert_memory_equal(again, bytes, got_size);
        char text[64];
        assert_true(op_record_print(&got, text, sizeof text) > 0);
        assert_in_range(strlen(text), 0, sizeof text - 1);
    } else {
        assert_int_equal(rc, -EBADMSG);
    }
    free(copy);
}

static void random_bytes_are_decoded_into_themselves_or_refused(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (unsigned round = 0; round < RANDOM_ROUNDS; round++) {
        uint8_t bytes[256];
        const size_t size = test_random_below(&random, sizeof bytes + 1);
        test_random_bytes(&random, bytes, size);
        if (size >= 8 && test_random_chance(&random, 80)) { /* a plausible header brings it further */
            const le32 record = le32_of((uint32_t)(size - test_random_below(&random, size / 4 + 1)));
            const le32 type = le32_of((uint32_t)test_random_below(&random, 16));
            memcpy(bytes, &record, sizeof record);
            memcpy(bytes + 4, &type, sizeof type);
            for (size_t i = OP_RECORD_HEADER_SIZE; i + 4 < size && test_random_chance(&random, 70); i++) {
                bytes[i] = (uint8_t)(test_random_chance(&random, 90) ? 0 : test_random_below(&random, 40));
            }
        }
        check_whatever_decodes(bytes, size);
    }
}

static void record_with_a_changed_byte_is_decoded_into_itself_or_refused(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (size_t i = 0; i < ARRAY_COUNT(all_types); i++) {
        uint8_t store[4 * BYTES_MAX];
        uint8_t encoded[RECORD_MAX];
        const struct op_record op = random_record(&random, all_types[i], store);
        const size_t size = op_record_size(&op);
        op_record_encode(&op, encoded);
        for (size_t at = 0; at < size; at++) {
            const uint8_t before = encoded[at];
            encoded[at] ^= (uint8_t)(1 + test_random_below(&random, 255));
            check_whatever_decodes(encoded, size);
            encoded[at] = before;
        }
    }
}

static void printing_cut_anywhere_stays_in_its_buffer(void **state)
{
    (void)state;
    struct test_random random;
    test_random_init(&random, test_seed("test_op"));
    for (size_t i = 0; i < ARRAY_COUNT(all_types); i++) {
        uint8_t store[4 * BYTES_MAX];
        const struct op_record op = random_record(&random, all_types[i], store);
        const int length = op_record_print(&op, NULL, 0);
        assert_in_range(length, 1, 4096);
        for (size_t size = 1; size <= (size_t)length + 1; size++) {
            char *text = malloc(size);
            assert_non_null(text);
            assert_int_equal(op_record_print(&op, text, size), length);
            assert_int_equal(strlen(text), size - 1 < (size_t)length ? size - 1 : (size_t)length);
            free(text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_of_every_type_comes_back_as_it_was),
        cmocka_unit_test(record_followed_by_others_takes_only_its_own_bytes),
        cmocka_unit_test(record_cut_anywhere_is_refused),
        cmocka_unit_test(record_that_is_longer_than_its_fields_is_refused),
        cmocka_unit_test(record_of_unknown_type_is_refused),
        cmocka_unit_test(random_bytes_are_decoded_into_themselves_or_refused),
        cmocka_unit_test(record_with_a_changed_byte_is_decoded_into_itself_or_refused),
        cmocka_unit_test(printing_cut_anywhere_stays_in_its_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
