package ssh

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// scriptFor returns what the login shell of the host runs for a request that is an argument, or
// "" for one that comes on standard input. It starts the installed fxfer. If that is missing
// or too old, it takes one from its standard input, into a new folder that allows execution, and
// removes it at the end. Any login shell can read the line: between the single quotes, which sh gets
// as one word, are no others, no backslashes and no exclamation marks.
//
// Nothing is written to standard input before the script asks for it, because head may read more
// than it passes on. A file with one colon is a script to every shell, so it shows whether files in
// a folder can be executed. An empty line instead of an upload says that the client has its answer:
// the exit code of a server that crashed may be that of one which differs.
func scriptFor(request string) string {
	return "sh -c '" + strings.Join([]string{
		`if command -v fxfer >/dev/null 2>&1; then fxfer serve --once ` + request + `; e=$?; case $e in ` + VersionDiffers + `|126|127) ;; *) exit $e;; esac; fi`,
		`echo ` + mark + `upload $(uname -s) $(uname -m)`,
		`a=; while read -r a n d; do case $a in upload) break;; "") exit 1;; esac; done`,
		`test "$a" = upload || exit 1`,
		`u=$(umask); umask 077; t=`,
		`clean() { if test -O "$t"; then rm -rf "$t"; fi; }`,
		`trap clean EXIT; trap "exit 1" HUP INT TERM PIPE`,
		`for b in "${TMPDIR:-/tmp}" "$XDG_RUNTIME_DIR" /var/tmp "$HOME" /dev/shm; do ` +
			`test -d "$b" || continue; t=$(mktemp -d "$b/fxfer.XXXXXXXXXX" 2>/dev/null) || continue; ` +
			`echo : >"$t/try" && chmod 700 "$t/try" && "$t/try" 2>/dev/null && break; clean; t=; done`,
		`if test -z "$t"; then echo ` + mark + `failed no folder for temporary files allows execution; exit 1; fi`,
		`rm "$t/try"; echo ` + mark + `send`,
		`head -c "$n" >"$t/fxfer"`,
		`s=$( { sha256sum <"$t/fxfer" || shasum -a 256 <"$t/fxfer" || sha256 -q <"$t/fxfer" || openssl dgst -sha256 -r <"$t/fxfer"; } 2>/dev/null)`,
		`case "$s" in "$d"*) ;; *) echo ` + mark + `failed what arrived has another digest: "$s"; exit 1;; esac`,
		`chmod 700 "$t/fxfer"; echo ` + mark + `arrived`,
		`umask "$u"; "$t/fxfer" serve --once; exit $?`,
	}, "; ") + "'"
}

// VersionDiffers is the exit code of a one-time server that speaks another version of the protocol
// than the client. It is also that of a program that has no such server.
const VersionDiffers = "2"

// upload sends a program. system is the operating system and processor of the host, as uname names
// them.
func (s *started) upload(f *Flags, t *target, system string) error {
	name, err := f.program(t, system)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(name)
	if err != nil {
		return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: fmt.Errorf("the program to upload: %w", err)}
	}
	fmt.Fprintf(f.notes, "fxfer: note: %s has no fxfer of this version: uploading one for this time, %s\n", t.host, units.Bytes(int64(len(program))))
	if _, err := fmt.Fprintf(s.in, "upload %d %x\n", len(program), sha256.Sum256(program)); err != nil {
		return errNoAnswer
	}
	if err := s.expect(t, "send"); err != nil {
		return err
	}
	for part := range slices.Chunk(program, 64<<10) {
		if _, err := s.in.Write(part); err != nil {
			break // the script says why
		}
		s.silence.Reset(answerWithin)
	}
	return s.expect(t, "arrived")
}

// expect reads a word from the script.
func (s *started) expect(t *target, word string) error {
	line, err := readMarked(s.out)
	if err != nil {
		return err
	}
	if why, ok := bytes.CutPrefix(line, []byte("failed ")); ok {
		return exit.WithHint(fmt.Errorf("upload the program to %s: %s", t.host, brief(why)), "install fxfer there")
	}
	if string(line) != word {
		return errors.New("upload the program: the shell over there says something unexpected")
	}
	return nil
}

// program returns the name of the file to upload to a host with this system.
func (f *Flags) program(t *target, system string) (string, error) {
	info, err := os.Stat(f.binary)
	isFolder := f.binary != "" && err == nil && info.IsDir()
	goos, goarch := systemOf(system)
	switch {
	case f.binary != "" && !isFolder:
		return f.binary, nil
	case goos == runtime.GOOS && goarch == runtime.GOARCH:
		name, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		return filepath.EvalSymlinks(name)
	case isFolder && goos != "":
		return filepath.Join(f.binary, "fxfer-"+goos+"-"+goarch), nil
	}
	return "", exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther,
		Err: fmt.Errorf("%s has no fxfer of this version, and the one here is for %s/%s, not for %s", t.host, runtime.GOOS, runtime.GOARCH, strings.TrimSpace(system))},
		"--remote-binary names a program for that host, or a folder with programs such as fxfer-linux-arm64")
}

// machines are names of processors that Go calls otherwise.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386", "armv6l": "arm", "armv7l": "arm"}

// systemOf returns Go's names of a system that uname describes; "" if these are no names.
func systemOf(uname string) (goos, goarch string) {
	goos, goarch, _ = strings.Cut(strings.ToLower(strings.TrimSpace(uname)), " ")
	if known, ok := machines[goarch]; ok {
		goarch = known
	}
	isName := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
	}
	if !isName(goos) || !isName(goarch) {
		return "", ""
	}
	return goos, goarch
}
