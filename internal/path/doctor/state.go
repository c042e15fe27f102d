package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stateVersion is the version of the state file. Version 1 knew one file only. Files of other
// versions are rejected.
const stateVersion = 2

// state is what a Changer needs to restore a host. Each entry holds the value before the first
// change, and every value that a Changer may have written since. The file is durable before the
// first of those is written, so after a crash any of them may be in force.
type state struct {
	Version int           `json:"version"`
	Boot    string        `json:"boot"`  // boot id of the last apply
	Netns   string        `json:"netns"` // network namespace
	Files   []fileState   `json:"files"`
	Sysctls []sysctlState `json:"sysctls"`
	Routes  []routeState  `json:"routes"`

	text []byte // content of the file it was read from
}

type fileState struct {
	Path string   `json:"path"`
	Old  *oldFile `json:"old"`  // nil if there was none
	Ours []string `json:"ours"` // contents
}

type oldFile struct {
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode"` // permissions
}

type sysctlState struct {
	Name string   `json:"name"`
	Old  string   `json:"old"` // as the kernel wrote it, with its newline
	Ours []string `json:"ours"`
}

type routeState struct {
	Old  []byte   `json:"old"` // canonical netlink messages
	Ours [][]byte `json:"ours"`
}

// was returns the content of the file, nil if there was none.
func (s *state) was() []byte {
	if s == nil {
		return nil
	}
	return s.text
}

func (s *state) sysctl(name string) *sysctlState {
	for i := range s.Sysctls {
		if s.Sysctls[i].Name == name {
			return &s.Sysctls[i]
		}
	}
	return nil
}

func (s *state) file(path string) *fileState {
	for i := range s.Files {
		if s.Files[i].Path == path {
			return &s.Files[i]
		}
	}
	return nil
}

// loadState returns nil if there is no file.
func loadState(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s struct {
		state
		Conf *fileState `json:"conf"` // of version 1
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the saved values in %s: %w", path, err)
	}
	if s.Version == 1 {
		s.Version, s.Files = stateVersion, nil
		if s.Conf != nil && len(s.Conf.Ours) > 0 {
			s.Files = []fileState{*s.Conf}
		}
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("the saved values in %s have version %d, but this program knows only version %d", path, s.Version, stateVersion)
	}
	s.text = text
	for _, x := range s.Sysctls {
		if !plainName(x.Name) {
			return nil, fmt.Errorf("the saved values in %s name no sysctl: %q", path, x.Name)
		}
	}
	if slices.ContainsFunc(s.Sysctls, func(x sysctlState) bool { return len(x.Ours) == 0 }) ||
		slices.ContainsFunc(s.Routes, func(x routeState) bool { return len(x.Ours) == 0 }) {
		return nil, fmt.Errorf("the saved values in %s are incomplete", path)
	}
	return &s.state, nil
}

// save returns when the state is durable.
func (s *state) save(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeDurably(path, append(text, '\n'), 0o600)
}

// plainName reports whether a sysctl's name leads below net and nowhere else.
func plainName(name string) bool {
	for _, part := range strings.Split(name, ".") {
		if part == "" || strings.ContainsAny(part, "/\x00") {
			return false
		}
	}
	return strings.HasPrefix(name, "net.")
}

// writeDurably replaces a file. After a crash the file has its old content or the new one. When
// writeDurably returns, the file is on disk.
func writeDurably(path string, content []byte, mode fs.FileMode) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncFolder(dir)
}

// removeDurably removes a file. It is no error if the file is already gone.
func removeDurably(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// readPlain returns a regular file, or nil if there is none. Anything else with that name is an
// error.
func readPlain(path string) (*oldFile, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	content, err := os.ReadFile(path)
	return &oldFile{Content: content, Mode: info.Mode().Perm()}, err
}

// sameValue compares the texts of a sysctl. White space does not matter. The order of a list of
// words does not matter either, since the kernel chooses it.
func sameValue(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if slices.Equal(x, y) {
		return true
	}
	for _, word := range append(slices.Clone(x), y...) {
		if _, ok := number(word); ok {
			return false
		}
	}
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// isOurs reports whether the text of a sysctl is one of values.
func isOurs(values []string, text string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return sameValue(v, text) })
}
