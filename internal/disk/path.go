package disk

import (
	"crypto/sha256"
	"encoding/hex"
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
)

// CheckPath reports whether p, which may come from a hostile peer, names an
// entry of a tree: slash separated, relative and clean, elements of at most 255
// bytes, at most 4096 in all, no element in the name space of partial files
// (".fxfer-", in any case, since file systems may ignore it), and a name that
// this operating system takes literally. "." is the root itself. Other bytes are
// free, so names need not be UTF-8 where the system doesn't ask for it. The
// error matches ErrPath.
func CheckPath(p string) error {
	if why := pathFault(p, runtime.GOOS == "windows"); why != "" {
		return fmt.Errorf("%w: %q: %s", ErrPath, clip(p), why)
	}
	if !filepath.IsLocal(filepath.FromSlash(p)) {
		return fmt.Errorf("%w: %q: not local", ErrPath, clip(p))
	}
	return nil
}

// pathFault says what is wrong with p, "" for nothing, under the rules of
// Windows or of the other systems.
func pathFault(p string, windows bool) string {
	switch {
	case p == ".":
		return ""
	case len(p) > maxPath:
		return fmt.Sprintf("longer than %d bytes", maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return "NUL byte"
	case strings.HasPrefix(p, "/"):
		return "absolute"
	}
	for element := range strings.SplitSeq(p, "/") {
		if why := elementFault(element, windows); why != "" {
			return why
		}
	}
	return ""
}

// elementFault says what is wrong with an element of a path.
func elementFault(element string, windows bool) string {
	switch {
	case element == "":
		return "empty element"
	case element == "." || element == "..":
		return "dot element"
	case len(element) > maxElement:
		return fmt.Sprintf("element longer than %d bytes", maxElement)
	case isReserved(element):
		return "reserved for partial files"
	case windows:
		return windowsFault(element)
	}
	return ""
}

// windowsFault says why Windows would not take element literally; the rules are
// those of "Naming Files, Paths, and Namespaces" in the Win32 documentation.
func windowsFault(element string) string {
	if !utf8.ValidString(element) {
		return "not UTF-8"
	}
	for i := range len(element) {
		if c := element[i]; c < 0x20 || strings.IndexByte(`<>:"|?*\`, c) >= 0 {
			return fmt.Sprintf("character %q", c)
		}
	}
	if last := element[len(element)-1]; last == '.' || last == ' ' {
		return "ends in a dot or a space"
	}
	device, _, _ := strings.Cut(element, ".")
	device = strings.ToUpper(strings.TrimRight(device, " "))
	switch device {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return "device name"
	}
	if rest, ok := strings.CutPrefix(device, "COM"); ok && isPort(rest) {
		return "device name"
	}
	if rest, ok := strings.CutPrefix(device, "LPT"); ok && isPort(rest) {
		return "device name"
	}
	return ""
}

// isPort reports a port number of COM and LPT; Windows counts superscripts in.
func isPort(s string) bool {
	switch s {
	case "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³":
		return true
	}
	return false
}

// checkName is CheckPath for the path of an entry that a folder was found to hold
// under name.
func checkName(name, path string) error {
	if runtime.GOOS == "windows" || len(path) > maxPath || elementFault(name, false) != "" {
		return CheckPath(path)
	}
	return nil
}

func isReserved(name string) bool {
	return len(name) >= len(reservedPrefix) && strings.EqualFold(name[:len(reservedPrefix)], reservedPrefix)
}

// reservedName is the name, without suffix, of what is kept beside the target
// base. A digest of the name, so that the longest name has one, too.
func reservedName(base string) string {
	sum := sha256.Sum256([]byte(base))
	return reservedPrefix + hex.EncodeToString(sum[:16])
}

// splitPath is path.Split without the trailing slash: "a" lies in ".".
func splitPath(p string) (folder, base string) {
	return path.Dir(p), path.Base(p)
}

func clip(p string) string {
	const most = 128
	if len(p) > most {
		return p[:most] + "…"
	}
	return p
}
