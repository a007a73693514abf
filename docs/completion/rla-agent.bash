_rla_agent_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _RLA_AGENT_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _rla_agent_completion rla-agent
