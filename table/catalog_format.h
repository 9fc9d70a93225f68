/*
 * table/catalog_format.h - pages and items of the catalog tree. Disk structures only.
 *
 * Leaf (PAGE_TYPE_CATALOG_LEAF): header.count item heads right behind the page header, sorted by key; values are packed
 * in the same order from the end of the page downwards without gaps (value i ends where value i - 1 begins); what lies
 * between heads and values is zero. header.used = heads + values in bytes. Inner (PAGE_TYPE_CATALOG_INNER):
 * header.count entries sorted by key; entry i covers keys >= its key (the first entry of a page: from the page's own
 * lower bound) and < the next entry's.
 */
#ifndef TBLFS_TABLE_CATALOG_FORMAT_H
#define TBLFS_TABLE_CATALOG_FORMAT_H

#include "bufcache/page_format.h"

/* Keys order by ino, then type, then sub. */
struct disk_catalog_key {
    le64 ino;     /*  0 */
    le64 sub;     /*  8 */
    uint8_t type; /* 16 enum item_type */
};
static_assert(sizeof(struct disk_catalog_key) == 17, "catalog key is 17 bytes");

struct catalog_item_head {
    struct disk_catalog_key key; /*  0 */
    uint8_t reserved;            /* 17 zero */
    le16 value_offset;           /* 18 from the start of the page */
    le16 value_size;             /* 20 */
};
static_assert(sizeof(struct catalog_item_head) == 22, "item head is 22 bytes");

struct catalog_inner_entry {
    struct disk_catalog_key key; /*  0 */
    uint8_t reserved[7];         /* 17 zero */
    struct disk_page_ptr ptr;    /* 24 never none */
};
static_assert(sizeof(struct catalog_inner_entry) == 40, "inner entry is 40 bytes");

#define CATALOG_FANOUT         ((uint32_t)(PAGE_PAYLOAD_SIZE / sizeof(struct catalog_inner_entry))) /* 203 */
#define CATALOG_MAX_HEIGHT     8u
#define CATALOG_MAX_VALUE_SIZE 4032u /* head + value fit twice into a leaf */

enum item_type {
    ITEM_INODE = 1,   /* (ino, 0): struct disk_inode */
    ITEM_SYMLINK = 2, /* (ino, part): target bytes, SYMLINK_PART_SIZE a part */
    ITEM_XATTR = 3,   /* (ino, name hash << 16 | tie): struct disk_xattr + name + value */
    ITEM_BACK = 4, /* (ino, hash of parent and cookie << 16 | tie): struct disk_back; one for each name but the first */
    ITEM_DIRENT = 5,     /* (parent ino, name hash << 16 | tie): struct disk_dirent + name */
    ITEM_ORPHAN = 6,     /* (INO_NONE, ino): empty; unlinked but still open */
    ITEM_SNAPSHOT = 7,   /* (INO_NONE, snapshot number) */
    ITEM_TABLESPACE = 8, /* (INO_NONE, tablespace number): struct disk_tablespace, name, directory; 0: the largest
                            number that was ever given */
    ITEM_OWNER = 9,      /* (INO_NONE, relation): struct disk_owner; of an inode with INODE_RENUMBERED */
};
#define ITEM_TYPE_LAST    ITEM_OWNER
#define SYMLINK_PART_SIZE 2048u
#define XATTR_MAX_VALUE   3072u

/* Name hashes have 47 bits and are never 0, so a directory entry's sub is a positive 64-bit number: also the readdir
 * cookie. */

struct disk_inode {
    le32 mode;                    /*   0 S_IFMT and permissions */
    le32 nlink;                   /*   4 0: orphan */
    le32 uid;                     /*   8 */
    le32 gid;                     /*  12 */
    le32 rdev;                    /*  16 */
    le32 ts;                      /*  20 tablespace of the relation */
    le64 atime_ns;                /*  24 set by create and utimens only */
    le64 mtime_ns;                /*  32 signed */
    le64 ctime_ns;                /*  40 */
    le64 rel;                     /*  48 relation of the content, REL_NONE: never had any */
    le64 rel_created;             /*  56 epoch in which that relation was created (COW-5) */
    struct disk_page_ptr content; /*  64 content root */
    le64 content_bytes;           /*  80 size; symlinks: length of the target; directories: number of entries */
    le64 change_epoch;            /*  88 last change of any kind */
    le64 rewrite_epoch;           /*  96 last change of content other than an append */
    le64 attr_epoch;              /* 104 last change of attributes, names or links */
    le64 parent;                  /* 112 directory of the inode's first name; the root's own number for the root */
    le64 name_cookie;             /* 120 sub of the directory entry of its first name; 0 for the root and orphans */
    uint8_t content_height;       /* 128 */
    uint8_t flags;                /* 129 INODE_DAMAGED, INODE_RENUMBERED */
    uint8_t reserved[2];          /* 130 zero */
    le32 content_leaves;          /* 132 leaves of the content tree: what st_blocks counts */
};
#define INODE_DAMAGED 1u /* replaying the log met a page of its content that could not be read */
#define INODE_RENUMBERED                                                                                               \
    2u /* a transaction rewrote the table: its relation was made for another inode, see ITEM_OWNER */
#define INODE_FLAGS (INODE_DAMAGED | INODE_RENUMBERED)
static_assert(sizeof(struct disk_inode) == 136, "inode is 136 bytes");

struct disk_dirent {
    le64 ino;     /* 0 */
    uint8_t kind; /* 8 mode >> 12 */
    /* name bytes to the end of the value, 1 to 255 */
};
static_assert(sizeof(struct disk_dirent) == 9, "directory entry is 9 bytes and a name");

struct disk_xattr {
    uint8_t name_size; /* 0 */
    /* name, then value to the end */
};

struct disk_snapshot {
    le64 at;                      /*  0 epoch of its fork */
    struct disk_page_ptr catalog; /*  8 catalog root; none: an empty tree */
    le64 created_ns;              /* 24 wall clock */
    uint8_t catalog_height;       /* 32 */
    uint8_t reserved[7];          /* 33 zero */
    /* name bytes to the end of the value, 1 to 255 */
};
static_assert(sizeof(struct disk_snapshot) == 40, "snapshot is 40 bytes and a name");

struct disk_tablespace {
    le64 created_ns;     /*  0 wall clock */
    uint8_t name_size;   /*  8 1 to 255 */
    uint8_t reserved[7]; /*  9 zero */
    /* name, then the directory to the end: absolute; empty: in the data directory */
};
static_assert(sizeof(struct disk_tablespace) == 16, "tablespace is 16 bytes, a name and a directory");

struct disk_owner {
    le64 owner; /* 0 inode that has the relation */
    le64 first; /* 8 inode that it was made for */
};

struct disk_back {
    le64 parent; /* 0 directory */
    le64 cookie; /* 8 sub of the entry there */
};

#endif
