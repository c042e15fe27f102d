package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
)

const (
	maxPath    = 4096 // bytes
	maxElement = 255  // bytes, the NAME_MAX of common file systems

	// reservedPrefix begins every name that this package makes beside a target.
	reservedPrefix   = ".fxfer-"
	partialSuffix    = ".part"
	checkpointSuffix = ".ckpt"
	linkSuffix       = ".link"
	hardSuffix       = ".hard"

	manifestPrefix = reservedPrefix + "manifest-" // temporary files of internal/client
	doctorPrefix   = reservedPrefix + "doctor-"   // and of internal/path/doctor
	asideName      = reservedPrefix + "sent"      // the folder of what internal/outbox is about to remove
)

// CheckPath reports whether p, which may come from a hostile peer, names an entry of a tree. A good
// path is slash separated, relative and clean. Its elements have at most 255 bytes, and it has at
// most 4096. No element is in the name space of partial files (".fxfer-", in any case, since file
// systems may ignore it). This operating system takes each name literally. "." is the root itself.
// Other bytes are free, so names need not be UTF-8 unless the system requires it. The error matches
// ErrPath.
func CheckPath(p string) error {
	if why := notAllowed(p); why != nil {
		return fmt.Errorf("%w: %q: %w", ErrPath, clip(p), why)
	}
	return nil
}

// notAllowed returns why p is not allowed here, without p; nil if it is.
func notAllowed(p string) error {
	err := pathFault(p, runtime.GOOS == "windows")
	if err == nil && runtime.GOOS == "windows" && !filepath.IsLocal(filepath.FromSlash(p)) {
		return errors.New("not local")
	}
	return err
}

// checkListed is CheckPath for an entry that was found, or is to be, whose path is that of the error.
func checkListed(p string) error {
	if why := notAllowed(p); why != nil {
		return at("list", p, fmt.Errorf("%w: %w", ErrPath, why))
	}
	return nil
}

// pathFault returns what is wrong with p, nil if nothing, under the rules of Windows or of the other
// systems.
func pathFault(p string, windows bool) error {
	switch {
	case p == ".":
		return nil
	case len(p) > maxPath:
		return fmt.Errorf("longer than %d bytes", maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return errors.New("NUL byte")
	case strings.HasPrefix(p, "/"):
		return errors.New("absolute")
	}
	for {
		end := strings.IndexByte(p, '/')
		if end < 0 {
			return elementFault(p, windows)
		}
		if why := elementFault(p[:end], windows); why != nil {
			return why
		}
		p = p[end+1:]
	}
}

// elementFault returns what is wrong with an element of a path, nil if nothing.
func elementFault(element string, windows bool) error {
	switch {
	case element == "":
		return errors.New("empty element")
	case element == "." || element == "..":
		return errors.New("dot element")
	case len(element) > maxElement:
		return fmt.Errorf("element longer than %d bytes", maxElement)
	case isReserved(element):
		return ErrReserved
	case windows:
		return windowsFault(element)
	}
	return nil
}

// windowsFault returns why Windows would not take element literally, nil if it would. The rules are
// those of "Naming Files, Paths, and Namespaces" in the Win32 documentation.
func windowsFault(element string) error {
	if !utf8.ValidString(element) {
		return errors.New("not UTF-8")
	}
	for i := range len(element) {
		if c := element[i]; c < 0x20 || strings.IndexByte(`<>:"|?*\`, c) >= 0 {
			return fmt.Errorf("character %q", c)
		}
	}
	if last := element[len(element)-1]; last == '.' || last == ' ' {
		return errors.New("ends in a dot or a space")
	}
	if isShortName(element) {
		return errors.New("may be the short name of another entry")
	}
	device, _, _ := strings.Cut(element, ".")
	device = strings.ToUpper(strings.TrimRight(device, " "))
	switch device {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return errors.New("device name")
	}
	if rest, ok := strings.CutPrefix(device, "COM"); ok && isPort(rest) {
		return errors.New("device name")
	}
	if rest, ok := strings.CutPrefix(device, "LPT"); ok && isPort(rest) {
		return errors.New("device name")
	}
	return nil
}

// isShortName reports whether element looks like the second name, of 8 and 3 characters, that Windows
// may have given to another entry: FXFER-~1.PAR for a partial file.
func isShortName(element string) bool {
	base, extension, _ := strings.Cut(element, ".")
	_, number, found := strings.Cut(base, "~")
	return found && number != "" && strings.Trim(number, "0123456789") == "" &&
		len(base) <= 8 && len(extension) <= 3
}

// isPort reports whether s is a port number of COM or LPT. Windows also accepts superscripts.
func isPort(s string) bool {
	switch s {
	case "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³":
		return true
	}
	return false
}

// checkName checks the path of an entry that was found as name in a folder, by CheckPath or the like.
func checkName(name, path string, check func(string) error) error {
	if runtime.GOOS == "windows" || len(path) > maxPath || elementFault(name, false) != nil {
		return check(path)
	}
	return nil
}

func isReserved(name string) bool {
	return len(name) >= len(reservedPrefix) && name[0] == reservedPrefix[0] && // as hardly any is
		strings.EqualFold(name[:len(reservedPrefix)], reservedPrefix)
}

// isOwn reports whether a reserved name is one that fxfer gives.
func isOwn(name string) bool {
	switch path.Ext(name) {
	case partialSuffix, checkpointSuffix, linkSuffix, hardSuffix, fillingSuffix, removingSuffix:
		return true
	}
	return name == seriesState || name == asideName || strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, doctorPrefix)
}

// reservedName returns the name, without suffix, of the files beside the target base. It is a
// digest of the name, so it fits even beside the longest name.
func reservedName(base string) string {
	sum := sha256.Sum256([]byte(base))
	return reservedPrefix + hex.EncodeToString(sum[:16])
}

// splitPath is path.Split without the trailing slash. "a" is in ".".
func splitPath(p string) (folder, base string) {
	end := strings.LastIndexByte(p, '/')
	if end < 0 {
		return ".", p
	}
	return p[:end], p[end+1:]
}

func clip(p string) string {
	const most = 128
	if len(p) > most {
		return p[:most] + "…"
	}
	return p
}
