# shellcheck shell=bash
# tblfs.bash - completion of tblfs for bash.
#
# Commands, switches and settings are those that the program itself lists.

_tblfs_commands() {
    tblfs help | sed -n 's/^  \([a-z]\{2,\}\)  *[A-Z].*/\1/p'
}

_tblfs_mounts() {
    findmnt -rn -t fuse.tblfs -o TARGET
}

# The switches of a command: those of its usage, and of the lines of its help that begin with one.
_tblfs_switches() {
    tblfs help "$1" | sed -n '1p; /^  -/p' | grep -o -e '--[a-z][a-z-]*' | sort -u
}

# Settings in a list behind -o: the one after the last comma.
_tblfs_settings() {
    local before=
    case $1 in *,*) before=${1%,*}, ;; esac
    tblfs settings | awk -v before="$before" 'NR > 1 { print before $1 ($4 == "switch" || $3 == "switch" ? "" : "=") }'
}

_tblfs() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]:-} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=$(_tblfs_commands)
    elif [ "$previous" = -o ]; then
        words=$(_tblfs_settings "$word")
        compopt -o nospace 2>/dev/null
    elif [ "$command" = help ]; then
        words=$(_tblfs_commands)
    elif [[ $word == -* ]]; then
        words=$(_tblfs_switches "$command")
    else
        case $command in umount | txn | snapshot | settings | backup | status | top) words=$(_tblfs_mounts) ;; esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    if [ "${#COMPREPLY[@]}" -eq 0 ] && [ "$previous" != -o ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _tblfs tblfs
