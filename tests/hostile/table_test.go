package hostile

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	updateTable = flag.Bool("update", false, "write docs/evidence/attacks.md anew, from all tests")
	halfOpen    = flag.Int("half-open", 2000, "connections of TestHalfOpen and TestFlood that say nothing")
)

const tableFile = "../../docs/evidence/attacks.md"

// try is an attack: the attacker, the attack, and the guard against it.
type try struct{ who, what, guard, test string }

var tries struct {
	sync.Mutex
	all []try
}

// The attackers.
const (
	stranger = "stranger"
	client   = "client"
	server   = "server"
	user     = "local user"
)

// tried records an attack by the running test for the table.
func tried(t *testing.T, who, what, guard string) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	tries.Lock()
	defer tries.Unlock()
	tries.all = append(tries.all, try{who, what, guard, test})
}

// guardOf names the guard that answers with a code.
func guardOf(code uint64) string {
	switch code {
	case gone:
		return "decoder: lengths and counts are checked before use; a first message has 16 KiB at most"
	case codeVersion:
		return "another version is refused before anything else is read"
	case codeTrust:
		return "only keys that were enrolled are admitted"
	case codeRight:
		return "rights: the share and the client must both allow it; unknown shares look the same"
	case codePath:
		return "paths are checked, then walked element by element below an open folder, never through a symlink"
	case codeUnsupported:
		return "settings are looked up by name; unknown ones are refused"
	}
	return "order of messages: a message out of order ends the session"
}

// table renders all attacks.
func table() []byte {
	tries.Lock()
	defer tries.Unlock()
	all := slices.Clone(tries.all)
	slices.SortFunc(all, func(a, b try) int {
		return cmp.Or(cmp.Compare(a.who, b.who), cmp.Compare(a.test, b.test), cmp.Compare(a.what, b.what))
	})
	all = slices.Compact(all)
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Attacks

%d attacks on a real server and a real client over TLS, by a peer that encodes each message by hand.
All are contained: nothing outside the share or target is touched, memory and time are bounded, and
an honest transfer works beside the attack or after it. `+"`go test ./tests/hostile -update`"+` writes this
table, and each whole run of these tests compares it.

| by a | what is tried | what contains it | test |
| --- | --- | --- | --- |
`, len(all))
	for _, x := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", x.who, strings.ReplaceAll(x.what, "|", `\|`), x.guard, x.test)
	}
	return b.Bytes()
}

// compareTable fails a complete run if the table in the docs differs.
func compareTable(code int) int {
	if code != 0 || flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" ||
		flag.Lookup("test.skip").Value.String() != "" || testing.Short() || raceEnabled || os.Getenv("FXFER_TRANSPORT") != "" { // some attacks are missing
		return code
	}
	now := table()
	if *updateTable {
		if err := os.WriteFile(tableFile, now, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	was, err := os.ReadFile(tableFile)
	if err != nil || !bytes.Equal(was, now) {
		fmt.Fprintln(os.Stderr, "docs/evidence/attacks.md is not what the tests try: go test ./tests/hostile -update", err)
		return 1
	}
	return 0
}
