# SPDX-License-Identifier: Apache-2.0
#
# Says briefly which tests have failed in the output of `go test -v`, and the first and last things that each of them said.

function said(test, line) {
	line = substr(line, 1, 400)
	n = ++count[test]
	lines[test, n] = line
}

/^=== (RUN|CONT|NAME|PAUSE) / { now = $3; next }
/^=== / { next }
/^ *--- FAIL: / { failed[++failures] = $3; next }
/^ *--- / { next }
/^(FAIL|ok|panic:|fatal error:)[ \t]/ { if ($1 != "ok") ended[++ends] = $0; now = ""; next }
/_test\.go:[0-9]+: / { said(now, $0) }

END {
	print "\nWhat failed:"
	for (i = 1; i <= failures; i++) {
		test = failed[i]
		print "--- FAIL: " test
		for (n = 1; n <= count[test]; n++) if (n <= 6 || n > count[test] - 3) print lines[test, n]
	}
	for (i = 1; i <= ends; i++) print ended[i]
}
