# shellcheck shell=sh
# tblfs.sh - transactions in a shell script. To be sourced:
#
#     . tblfs.sh
#     tx_begin /srv/tables            # $tx is the transaction's directory
#     sort -k2 "$tx/orders.tsv" > "$tx/by-customer.tsv"
#     tx_commit || exit               # 75: a conflict, and with which tables
#
#   tx_begin MNT [NAME]  begins one; fails when another one of this script is open
#   tx_commit            commits it; exit status of `tblfs commit`. When that fails it stays open
#   tx_abort             aborts it; with none open it does nothing
#
# What is open when the shell exits, also by a signal, is aborted: tx_begin sets traps for that. A script with traps of its
# own sets TX_TRAPS=no before, and calls tx_abort in its own. Works in every POSIX shell. TBLFS names the program.

tx=

tx_begin() {
    if [ -n "$tx" ]; then
        echo "tx_begin: $tx is open" >&2
        return 1
    fi
    if [ ! -d "${1:?tx_begin: the mount point is missing}/.txn" ]; then
        echo "tx_begin: $1: no tblfs is mounted there" >&2
        return 1
    fi
    if [ -n "${2:-}" ]; then
        mkdir -- "$1/.txn/$2" || return
        tx=$1/.txn/$2
    else
        tx=$(mktemp -d -p "$1/.txn") || return
    fi
    case $tx in /*) ;; *) tx=$(pwd)/$tx ;; esac # the script may change its directory
    [ "${TX_TRAPS:-yes}" = no ] && return
    trap 'tx_abort' EXIT
    trap 'exit 129' HUP # the trap above comes then
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

tx_commit() {
    "${TBLFS:-tblfs}" commit "${tx:?tx_commit: no transaction is open}" && tx=
}

# By rmdir, never by rm -rf: that would first remove every table in it one by one.
tx_abort() {
    [ -n "$tx" ] || return 0
    rmdir -- "$tx" && tx=
}
