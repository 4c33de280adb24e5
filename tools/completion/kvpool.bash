# SPDX-License-Identifier: Apache-2.0
# bash completion of kvpool; made by: kvpool completion bash
_kvpool() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words files=0
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "format info check repair host setup grow shrink stat top serve put get ls rm ns replay bench doctor events why completion --help --version" -- "$word")); return
  fi
  case ${COMP_WORDS[1]} in
    format)
      words="--size --devices --block-bytes --index-growth --max-size --hosts --members --standbys --standby-hosts --width --namespaces --lease-ms --grace-us --yes --force --dry-run --json --help"; files=0 ;;
    info)
      words="--json --help"; files=0 ;;
    check)
      case $before in
        --progress) COMPREPLY=($(compgen -W "auto json none" -- "$word")); return ;;
      esac
      words="--payload --decode --progress --json --help"; files=0 ;;
    repair)
      words="--new-life --yes --force --dry-run --json --help"; files=0 ;;
    host)
      words="fence --confirmed --dry-run --json --help"; files=0 ;;
    setup)
      case $before in
        --type) COMPREPLY=($(compgen -W "wb wc uc-" -- "$word")); return ;;
        --ddio) COMPREPLY=($(compgen -W "flush require-nonallocating" -- "$word")); return ;;
      esac
      words="claim release admin partition host device create destroy grow shrink list fence watch --range --host --label --hosts --uuid --size --slice --slice-id --pci --type --ddio --force --yes --confirmed --dry-run --json --help"; files=0 ;;
    grow)
      case $before in
        --progress) COMPREPLY=($(compgen -W "auto json none" -- "$word")); return ;;
      esac
      words="--size --timeout --dry-run --progress --json --help"; files=0 ;;
    shrink)
      case $before in
        --progress) COMPREPLY=($(compgen -W "auto json none" -- "$word")); return ;;
      esac
      words="--size --timeout --dry-run --progress --json --help"; files=0 ;;
    stat)
      words="--watch --count --json --help"; files=0 ;;
    top)
      words="--interval --count --json --help"; files=0 ;;
    serve)
      words="--seconds --name --suspicion --huge --control-device --confirmed --ready-fd --json --help"; files=0 ;;
    put)
      words="--pool --ns --model --dtype --parent --embedded --timeout --dry-run --json --help"; files=1 ;;
    get)
      words="--pool --ns --model --dtype --hex --timeout --json --help"; files=1 ;;
    ls)
      words="--ns --limit --all --json --help"; files=0 ;;
    rm)
      words="--pool --ns --model --dtype --hex --timeout --dry-run --json --help"; files=0 ;;
    ns)
      case $before in
        --verify) COMPREPLY=($(compgen -W "always sample off" -- "$word")); return ;;
      esac
      words="list create clear bypass resume remove --pool --model --dtype --block-tokens --block-bytes --quota --weight --verify --embedded --yes --timeout --dry-run --json --help"; files=0 ;;
    replay)
      case $before in
        --verify) COMPREPLY=($(compgen -W "always off" -- "$word")); return ;;
        --progress) COMPREPLY=($(compgen -W "auto json none" -- "$word")); return ;;
      esac
      words="--members --capacity --block-bytes --pool --scratch --metadata-only --verify --max-requests --repeat --min-bytes --skip-bad --seed --requests --json-file --corrupt --progress --json --help"; files=1 ;;
    bench)
      case $before in
        --progress) COMPREPLY=($(compgen -W "auto json none" -- "$word")); return ;;
      esac
      words="--list --quick --runs --progress --json --help"; files=0 ;;
    doctor)
      words="--json --help"; files=0 ;;
    events)
      words="--follow --from --limit --json --help"; files=0 ;;
    why)
      words="--pool --ns --model --dtype --hex --json --help"; files=0 ;;
    completion)
      words="bash zsh --help"; files=0 ;;
    *) return ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ "$files" = 1 ]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}
complete -F _kvpool kvpool
