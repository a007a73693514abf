#compdef rla-agent

_rla_agent_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _RLA_AGENT_COMPLETE=complete_zsh rla-agent)
}

compdef _rla_agent_completion rla-agent
