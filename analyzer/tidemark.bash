# bash completion for tidemark and tidemark-record. The words come from the tools' own help, so that this file lists none of them.

_tidemark_help() { # as it is written: where COLUMNS is exported and small, lines would be wrapped
	(unset COLUMNS; "$@" --help 2>/dev/null)
}

_tidemark_options() { # the long options that a help shows
	_tidemark_help "$@" | sed -nE 's/^ +(-[A-Za-z], )?(--[a-z][a-z-]*).*/\2/p' | sort -u
}

_tidemark_values() { # the values that a help shows for an option, as in --stacks=unwind|fp|off
	local option=$1
	shift
	_tidemark_help "$@" | grep -oE -- "$option=[a-z]+(\|[a-z]+)+" | head -n 1 | cut -d= -f2 | tr '|' '\n'
}

_tidemark_words() { # the words that a help explains at the beginning of a line, as the formats of export
	_tidemark_help "$@" | sed -nE 's/^([a-z]+) {2,}.*/\1/p'
}

_tidemark() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=("${COMP_WORDS[0]}") i
	if [[ ${COMP_WORDS[0]##*/} != tidemark-record ]]; then
		if ((COMP_CWORD == 1)); then
			mapfile -t COMPREPLY < <(compgen -W "$(_tidemark_help "${command[0]}" | sed -nE 's/^  ([a-z]+) +[a-z].*/\1/p' | grep -v '^tidemark$') --help --version" -- "$current")
			return
		fi
		command+=("${COMP_WORDS[1]}")
	elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[1]} == @(names|dump) ]]; then
		command+=("${COMP_WORDS[1]}")
	fi
	# Behind the recorded command's name, its own completion would be right; files are the best we know.
	if [[ ${command[*]} == *record ]]; then
		for ((i = ${#command[@]}; i < COMP_CWORD; i++)); do
			[[ ${COMP_WORDS[i]} == -- ]] && { mapfile -t COMPREPLY < <(compgen -c -f -- "$current"); return; }
		done
	fi
	if [[ $previous == -o && $current != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
	fi
	# What an option takes, behind a = or a blank: the values that it knows, else a file.
	local option=$previous equals=
	if [[ $current == = ]]; then
		equals=1 current=
	elif [[ $previous == = ]]; then
		equals=1 option=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ $option == --?* && $current != -* ]]; then
		local values
		values=$(_tidemark_values "$option" "${command[@]}")
		if [[ $values ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
			return
		fi
	fi
	if [[ $equals ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
	elif [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_tidemark_options "${command[@]}")" -- "$current")
	elif [[ ${command[*]} == *record ]]; then
		mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
	else
		local words=()
		((COMP_CWORD == 2)) && mapfile -t words < <(compgen -W "$(_tidemark_words "${command[@]}")" -- "$current")
		mapfile -t COMPREPLY < <(((${#words[@]})) && printf '%s\n' "${words[@]}" || compgen -f -- "$current")
	fi
}

complete -o filenames -F _tidemark tidemark tidemark-record
