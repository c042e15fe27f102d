package filter

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// git asks the real git about rules, in a folder of its own.
type git struct {
	t      *testing.T
	folder string
	rules  string // path of the file with rules
}

func newGit(t *testing.T) *git {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	g := &git{t: t, folder: t.TempDir(), rules: filepath.Join(t.TempDir(), "rules")}
	g.run("", "init", "-q")
	require.NoError(t, os.RemoveAll(filepath.Join(g.folder, ".git/info")))
	return g
}

// run gives git input and returns its output, split at NUL bytes. check-ignore exits with 1 if it
// found nothing.
func (g *git) run(input string, arguments ...string) []string {
	g.t.Helper()
	arguments = append([]string{"-c", "core.excludesFile=" + g.rules, "-c", "core.ignoreCase=false"}, arguments...)
	command := exec.CommandContext(g.t.Context(), "git", arguments...)
	command.Dir = g.folder
	command.Env = append(os.Environ(), "HOME="+g.folder, "XDG_CONFIG_HOME="+g.folder, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_DIR="+filepath.Join(g.folder, ".git"), "GIT_WORK_TREE="+g.folder, "LC_ALL=C")
	command.Stdin = strings.NewReader(input)
	var errors bytes.Buffer
	command.Stderr = &errors
	output, err := command.Output()
	if command.ProcessState == nil || command.ProcessState.ExitCode() != 1 {
		require.NoError(g.t, err, errors.String())
	}
	return strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")
}

// excluded asks which of these existing entries are excluded.
func (g *git) excluded(rules string, paths []string) map[string]bool {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(g.rules, []byte(rules), 0o600))
	input := "./" + strings.Join(paths, "\x00./") + "\x00" // a colon at the beginning would have a meaning
	out := g.run(input, "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")
	require.Len(g.t, out, 4*len(paths))
	answer := map[string]bool{}
	for i := 0; i < len(out); i += 4 { // file with rules, line, rule, path
		answer[strings.TrimPrefix(out[i+3], "./")] = out[i+2] != "" && out[i+2][0] != '!'
	}
	return answer
}

// selectedFiles returns the files that a walk selects, sorted.
func (g *git) selectedFiles(rules string) []string {
	g.t.Helper()
	require.NoError(g.t, os.WriteFile(g.rules, []byte(rules), 0o600))
	files := g.run("", "ls-files", "-z", "--others", "--exclude-from="+g.rules)
	slices.Sort(files)
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

func (g *git) add(path string) error {
	name, dir := strings.CutSuffix(path, "/")
	name = filepath.Join(g.folder, name)
	if dir {
		return os.MkdirAll(name, 0o700)
	}
	return cmp.Or(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600))
}

// TestDecisionsOfGit checks that the table of TestExcluded is right.
func TestDecisionsOfGit(t *testing.T) {
	g := newGit(t)
	for _, c := range decisions {
		if strings.HasPrefix(c.rules, "#") || quirk(c.rules) { // a comment in a file
			continue
		}
		want := map[string]bool{}
		for _, path := range split(c.selected, " ") {
			want[path] = false
		}
		for _, path := range split(c.excluded, " ") {
			want[path] = true
		}
		// The table has the same name for a file and a folder: that takes several trees.
		for len(want) > 0 {
			var paths []string
			for path := range want {
				name := strings.TrimSuffix(path, "/")
				if slices.Contains(paths, name) { // exists as a folder or a file
					continue
				}
				if g.add(path) == nil {
					paths = append(paths, name)
					require.Equal(t, want[path], g.excluded(c.rules, []string{name})[name], "%q: %q", c.rules, path)
					delete(want, path)
				}
			}
			require.NotEmpty(t, paths)
			g.clear()
		}
	}
}

func (g *git) clear() {
	entries, err := os.ReadDir(g.folder)
	require.NoError(g.t, err)
	for _, entry := range entries {
		if entry.Name() != ".git" {
			require.NoError(g.t, os.RemoveAll(filepath.Join(g.folder, entry.Name())))
		}
	}
}

// walk visits the entries that g.add made. It enters a folder only if visit says so.
func (g *git) walk(visit func(path string, dir bool) bool) {
	require.NoError(g.t, filepath.WalkDir(g.folder, func(name string, d fs.DirEntry, err error) error {
		switch path := strings.TrimPrefix(strings.TrimPrefix(name, g.folder), "/"); {
		case err != nil || path == "":
			return err
		case path == ".git" || !visit(path, d.IsDir()) && d.IsDir():
			return fs.SkipDir
		}
		return nil
	}))
}

// quirk reports whether git handles a rule differently from its manual, which says "other
// consecutive asterisks are considered regular asterisks". Git before 2.52 strips the part before
// the first wildcard, and then sees "**" at the beginning of "a**/b". It also does not see an
// escaped slash after "**" as a slash.
func quirk(rule string) bool {
	rule = strings.TrimPrefix(rule, "!")
	i := strings.IndexAny(rule, `*?[\`)
	return i > 0 && rule[i-1] != '/' && strings.HasPrefix(rule[i:], "**") && strings.Contains(strings.TrimSuffix(rule, "/"), "/") ||
		strings.Contains(rule, `**\/`)
}

var ruleFiles = flag.Int("rule-files", 20, "files of rules for each tree of TestLikeGit")

// TestLikeGit compares random files of rules with git, on random trees: Excluded for each entry,
// and a walk with Skip. Lines that ReadRules refuses stay in git's file: they must never match.
func TestLikeGit(t *testing.T) {
	g := newGit(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "ab", "ba", "abc", "a.c", "b.c", ".h", "A", "-", "*", "**", "[a]", "!a", "#a", "a b", "a ", `\`, `a\b`, "\xff", "é", "a\n", "]", "1"}
	var grow func(folder string, depth int)
	grow = func(folder string, depth int) {
		for _, name := range names {
			switch random.IntN(2 + depth) {
			case 0:
				if depth < 4 {
					require.NoError(t, g.add(folder+name+"/"))
					grow(folder+name+"/", depth+1)
				}
			case 1:
				require.NoError(t, g.add(folder+name))
			}
		}
	}
	for range 3 {
		g.clear()
		grow("", 1)
		kinds, paths := map[string]bool{}, []string(nil) // whether it is a folder
		g.walk(func(path string, dir bool) bool {
			kinds[path] = dir
			paths = append(paths, path)
			return true
		})
		asked := paths
		if len(asked) > 1500 {
			random.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
			asked = asked[:1500]
		}
		for range *ruleFiles {
			ours, theirs := randomRules(t, random)
			f, err := New(Options{Rules: ours})
			require.NoError(t, err)
			what := func(path string) string {
				return fmt.Sprintf("rules %q, read as %q: %q, folder: %v", theirs, ours, path, kinds[path])
			}
			for path, excluded := range g.excluded(theirs, asked) {
				if excluded != f.Excluded(path, kinds[path]) {
					require.Failf(t, "not like git", "%s: git says %v", what(path), excluded)
				}
			}
			selected := []string{}
			g.walk(func(path string, dir bool) bool {
				skip := f.Skip(path, dir, 0, time.Time{})
				if !skip && !dir {
					selected = append(selected, path)
				}
				return !skip
			})
			slices.Sort(selected)
			require.Equal(t, g.selectedFiles(theirs), selected, what(""))
		}
	}
}

// randomRules makes a file of rules. ours are those that ReadRules accepts.
func randomRules(t *testing.T, random *rand.Rand) (ours []string, theirs string) {
	pieces := strings.Split("a b ab c . / / / * * ** **/ /** /**/ *** ? ?? [ab] [!a] [^b] [a-c] [] [ ] [[:alpha:] [[:punct:]] [[:space:]] [[:upper:]-] "+
		`\* \\ \[ \a \/ \  [\]a] [*-\\] ! # - \!a \#a a.c .h [--a] .. é `+"\xff [\x80-\xff] \r a\t [a/b] [[:x:]] [[:] [c-a]", " ")
	var file strings.Builder
	for range 1 + random.IntN(6) {
		var line strings.Builder
		if random.IntN(3) == 0 {
			line.WriteByte('!')
		}
		if random.IntN(6) == 0 {
			line.WriteByte('/')
		}
		for range 1 + random.IntN(5) {
			line.WriteString(pieces[random.IntN(len(pieces))])
		}
		line.WriteString([]string{"", "", "", "", "/", "/", " ", "  ", `\ `, `\  `}[random.IntN(10)])
		if quirk(line.String()) {
			continue
		}
		line.WriteString([]string{"\n", "\n", "\r\n"}[random.IntN(3)])
		file.WriteString(line.String())
		rules, err := ReadRules(strings.NewReader(line.String()))
		if err == nil {
			ours = append(ours, rules...)
		}
	}
	theirs = file.String()
	if whole, err := ReadRules(strings.NewReader(theirs)); err == nil {
		require.Equal(t, ours, whole)
	}
	return ours, theirs
}
