#compdef rla

_rla_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _RLA_COMPLETE=complete_zsh rla)
}

compdef _rla_completion rla
