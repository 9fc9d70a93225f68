#!/bin/bash
# tests/mount/kill.sh - the daemon is killed at random moments under a mixed load; what was acknowledged is there after each
# mount, synced or not. Replayed by SEED (the moments are the machine's).
# shellcheck source=tests/mount/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=20
[ "${LONG:-}" = 1 ] && rounds=200
RANDOM=${SEED:-1}
echo "SEED=${SEED:-1} replay with: make check TEST=mount/kill SEED=${SEED:-1}"
said=$work/acknowledged # what each worker was told, outside the mount
mkdir "$said"

# Workers end at the first failure: then the daemon is gone. A word is noted behind the call that it is about, so what is
# noted has happened; the call behind it may have.

append_rows() { # WORKER ROUND: rows "ROUND COUNT xxx"
    local row=0 size
    while :; do
        row=$((row + 1))
        size=$(((row * 37 + $1 * 11) % 400))
        printf '%d\t%d\t%d\t%0*d\n' "$2" "$row" "$size" "$size" 0 >>"$mnt/rows.$1" || return
        echo "$2 $row" >"$said/rows.$1.new" && mv "$said/rows.$1.new" "$said/rows.$1"
    done
}

edit_in_place() { # ROUND: a counter in a table of 500 rows, by sed -i (a rename over the table)
    local edit=0
    while :; do
        edit=$((edit + 1))
        sed -i "1s/.*/$1 $edit/" "$mnt/edited" || return
        echo "$1 $edit" >"$said/edited.new" && mv "$said/edited.new" "$said/edited"
    done
}

move_names() { # ROUND: one file on its way through directories
    local move=0
    while :; do
        move=$((move + 1))
        mkdir "$mnt/dirs/$1.$move" || return
        mv "$mnt"/dirs/*/wanderer "$mnt/dirs/$1.$move/wanderer" || return
        echo "$1.$move" >"$said/wanderer.new" && mv "$said/wanderer.new" "$said/wanderer"
        find "$mnt/dirs" -mindepth 1 -maxdepth 1 -empty -delete || return
    done
}

copy_and_remove() { # ROUND
    local copy=0
    while :; do
        copy=$((copy + 1))
        cp "$mnt/source" "$mnt/copies/$1.$copy" || return
        echo "$1.$copy" >>"$said/copies"
        if [ $((copy % 4)) = 0 ]; then
            rm "$mnt/copies/$1.$((copy - 2))" || return
            echo "$1.$((copy - 2))" >>"$said/removed"
        fi
        [ $((copy % 100)) = 0 ] || continue
        rm "$mnt"/copies/* || return
        : >"$said/copies"
        : >"$said/removed"
    done
}

verify_rows() { # WORKER
    awk -F '\t' '
        NF != 4 || length($4) != ($3 > 0 ? $3 : 1) || $4 ~ /[^0]/ { print "not whole: " NR; exit }
        $1 == round && $2 != count + 1 || $1 < round || $1 > round && $2 != 1 { print "out of order: " NR; exit }
        { round = $1; count = $2 }' "$mnt/rows.$1" >"$work/wrong"
    [ ! -s "$work/wrong" ] || fail "rows.$1: $(cat "$work/wrong")"
    [ -z "$(tail -c 1 "$mnt/rows.$1")" ] || fail "rows.$1: the last row is torn"
    [ ! -e "$said/rows.$1" ] || not_behind "rows.$1" "$(tail -n 1 "$mnt/rows.$1" | cut -f1,2)" "$(cat "$said/rows.$1")"
}

verify_names() {
    local name
    same "wanderers" "$(cat "$mnt"/dirs/*/wanderer)" wandering
    name=$(basename "$(dirname "$mnt"/dirs/*/wanderer)")
    not_behind "wanderer" "${name/./ }" "$(tr . ' ' <"$said/wanderer")"
    sort "$said/copies" >"$work/copies.sorted"
    sort "$said/removed" >"$work/removed.sorted"
    (cd "$mnt/copies" && find . -type f -exec cksum {} +) |
        awk -v want="$(cksum <"$mnt/source")" '$1 " " $2 == want { print substr($3, 3) }' | sort >"$work/whole"
    while read -r name; do
        gone_with_the_rest "$name"
    done < <(comm -23 "$work/copies.sorted" "$work/removed.sorted" | comm -23 - "$work/whole")
    name=$(cd "$mnt/copies" && find . -type f | cut -c 3- | sort | comm -12 - "$work/removed.sorted")
    [ -z "$name" ] || fail "there again: $name"
}

# The removal that was under way when the daemon was killed: of a copy two back, or of all.
gone_with_the_rest() { # NAME
    local last
    last=$(tail -n 1 "$said/copies")
    [ ! -e "$mnt/copies/$1" ] || fail "copy $1 differs"
    [ "$((${1#*.} + 2))" = "${last#*.}" ] || [ $((${last#*.} % 100)) = 0 ] || fail "copy $1 is gone"
}

verify() {
    local worker
    for worker in 1 2 3; do verify_rows $worker; done
    same "rows of the edited table" "$(wc -l <"$mnt/edited")" 500
    same "their bytes" "$(tail -n +2 "$mnt/edited" | cksum)" "$(seq 2 500 | cksum)"
    not_behind "edited" "$(head -n 1 "$mnt/edited")" "$(cat "$said/edited")"
    verify_names
}

run_round() { # ROUND: load until the kill
    local pid worker workers=()
    pid=$(daemon_pid)
    for worker in 1 2 3; do
        append_rows $worker "$1" 2>/dev/null & workers+=($!)
    done
    edit_in_place "$1" 2>/dev/null & workers+=($!)
    move_names "$1" 2>/dev/null & workers+=($!)
    copy_and_remove "$1" 2>/dev/null & workers+=($!)
    sleep "0.$((100 + RANDOM % 500))"
    kill -KILL "$pid"
    wait_gone "$pid"
    wait "${workers[@]}" || true
}

options=checkpoint_log_size=1M,checkpoint_interval=1
mount_store $options
mkdir "$mnt/dirs" "$mnt/dirs/0.0" "$mnt/copies"
echo wandering >"$mnt/dirs/0.0/wanderer"
seq 500 >"$mnt/edited"
sed -i '1s/.*/0 0/' "$mnt/edited"
seq 20000 >"$mnt/source"
touch "$mnt/rows.1" "$mnt/rows.2" "$mnt/rows.3" "$said/copies" "$said/removed"
echo "0.0" >"$said/wanderer"
echo "0 0" >"$said/edited"
for ((round = 1; round <= rounds; round++)); do
    run_round $round
    refuses "not connected" ls "$mnt"
    mount_store $options 2>"$work/said"
    grep -q "daemon was gone" "$work/said" || fail "does not say that the mount was dead"
    [ "$(status redo_records)" -ge 1 ] || [ "$(status checkpoints)" -ge 1 ] || fail "nothing was replayed"
    verify
done
echo "$rounds kills; $(cat "$mnt"/rows.* | wc -l) rows, $(wc -c <"$said/copies") bytes of names told"
umount_store
check_store
ok everything_acknowledged_survives_kills
