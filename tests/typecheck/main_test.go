package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// module has one fault or more on darwin and windows, in each kind of file, and none on linux.
const module = `
-- go.mod --
module example.org/planted

go 1.26
-- planted.go --
package planted

import "example.org/planted/inner"

func All() int { return system() + inner.Number() }
-- system_linux.go --
package planted

func system() int { return 1 }
-- system_windows.go --
package planted

import "os"

func system() int { return bare() + len(missing()) }

func bare() int
-- export_test.go --
package planted

func (Exported) Method() int { return system() }

type Exported struct{}
-- planted_test.go --
package planted_test

import (
	"testing"

	"example.org/planted"
	"example.org/planted/inner"
)

func TestAll(t *testing.T) { t.Log(planted.Exported{}.Method() + inner.Number()) }
-- planted_darwin_test.go --
package planted_test

import "testing"

func TestDarwin(t *testing.T) { t.Lgo(undefined) }
-- inner/inner.go --
package inner

import "os"

func Number() int { return os.Getpid() }
-- inner/inner_darwin_test.go --
package inner

import "testing"

func TestInner(t *testing.T) {
	var unused int
}
-- windows/windows_windows.go --
package windows

func F() string { return 1 }
`

func TestPlanted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range txtar.Parse([]byte(module)).Files {
		name := filepath.Join(dir, filepath.FromSlash(file.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, file.Data, 0o600))
	}
	for _, tc := range []struct {
		platform string
		want     []string
	}{
		{"linux/amd64", nil},
		{"darwin/arm64", []string{
			"export_test.go:3:39",            // undefined: system
			"inner/inner_darwin_test.go:6:6", // declared and not used: unused
			"planted.go:5:25",                // undefined: system
			"planted_darwin_test.go:5:35",    // t.Lgo undefined
			"planted_darwin_test.go:5:39",    // undefined: undefined
		}},
		{"windows/amd64", []string{
			"system_windows.go:3:8",           // "os" imported and not used
			"system_windows.go:5:41",          // undefined: missing
			"system_windows.go:7:1",           // missing function body: bare
			"windows/windows_windows.go:3:26", // cannot use 1 as string value
		}},
	} {
		faults, err := check(dir, tc.platform)
		require.NoError(t, err)
		var places []string
		for _, fault := range faults {
			place, _, _ := strings.Cut(fault, ": ")
			places = append(places, filepath.ToSlash(place))
		}
		require.Equal(t, tc.want, places, "%s: %q", tc.platform, faults)
	}
}

func TestPlatform(t *testing.T) {
	t.Parallel()
	_, err := check(".", "darwin")
	require.ErrorContains(t, err, "no platform")
}
