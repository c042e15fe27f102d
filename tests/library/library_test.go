// Package library uses pkg/fxfer like any other user: from a module outside the repository.
package library

import (
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/fxfer/fxfer"

// TestOutside builds and runs a program of 50 lines in a module of its own.
func TestOutside(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	program, err := os.ReadFile("testdata/program/main.go")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(program), "\n"), 50)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600))
	for _, name := range []string{"go.mod", "go.sum"} { // the same versions, so that nothing has to be downloaded
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	run := func(name string, arg ...string) string {
		cmd := exec.CommandContext(t.Context(), name, arg...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	run("go", "mod", "edit", "-module=example.org/program", "-require="+module+"@v0.0.0", "-replace="+module+"="+root)
	run("go", "build", "-o", "program", ".")

	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "file"), []byte("hello"), 0o600))
	require.Equal(t, "1 sent, 5 bytes, got \"hello\", not found\n", run("./program", data))
}

// TestNameable: users can name each type that the package mentions, however deep.
func TestNameable(t *testing.T) {
	t.Parallel()
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedTypes | packages.NeedImports}, module+"/pkg/fxfer")
	require.NoError(t, err)
	require.Empty(t, loaded[0].Errors)
	scope := loaded[0].Types.Scope()
	named := make(map[*types.TypeName]bool)
	for _, name := range scope.Names() {
		if x, ok := types.Unalias(scope.Lookup(name).Type()).(*types.Named); ok && scope.Lookup(name).Exported() {
			if _, ok := scope.Lookup(name).(*types.TypeName); ok {
				named[x.Obj()] = true
			}
		}
	}
	require.NotEmpty(t, named)

	seen := make(map[types.Type]bool)
	var walk func(where string, x types.Type)
	walk = func(where string, x types.Type) {
		x = types.Unalias(x)
		if seen[x] {
			return
		}
		seen[x] = true
		switch x := x.(type) {
		case *types.Named:
			if p := x.Obj().Pkg(); p == nil || !strings.HasPrefix(p.Path(), module) {
				return
			}
			if !named[x.Obj()] {
				t.Errorf("%s mentions %s, which has no name in the package", where, x)
			}
			for m := range x.Methods() {
				if m.Exported() {
					walk(where+"."+m.Name(), m.Type())
				}
			}
			walk(where, x.Underlying())
		case *types.Struct:
			for f := range x.Fields() {
				if f.Exported() {
					walk(where+"."+f.Name(), f.Type())
				}
			}
		case *types.Signature:
			walk(where, x.Params())
			walk(where, x.Results())
		case *types.Tuple:
			for v := range x.Variables() {
				walk(where, v.Type())
			}
		case *types.Map:
			walk(where, x.Key())
			walk(where, x.Elem())
		case interface{ Elem() types.Type }: // pointer, slice, array, channel
			walk(where, x.Elem())
		}
	}
	for _, name := range scope.Names() {
		if o := scope.Lookup(name); o.Exported() {
			walk(name, o.Type())
		}
	}
}

// TestMethods: the text of the package lists the methods that go doc does not show.
func TestMethods(t *testing.T) {
	t.Parallel()
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedTypes | packages.NeedImports}, module+"/pkg/fxfer")
	require.NoError(t, err)
	var methods []string
	for _, name := range []string{"Client", "CopySource", "CopyState", "Files", "LivePriority", "Server", "Throttle"} {
		x, ok := types.Unalias(loaded[0].Types.Scope().Lookup(name).Type()).(*types.Named)
		require.True(t, ok, name)
		for m := range x.Methods() {
			if m.Exported() {
				methods = append(methods, name+"."+m.Name())
			}
		}
	}
	text, err := os.ReadFile("../../pkg/fxfer/doc.go")
	require.NoError(t, err)
	var listed []string
	for _, found := range regexp.MustCompile(`(?m)^//\t(\w+\.\w+) `).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, found[1])
	}
	require.ElementsMatch(t, methods, listed)
}
