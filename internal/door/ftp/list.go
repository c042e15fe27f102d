package ftp

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fxfer/fxfer/internal/door"
)

// timeFormat is that of times in RFC 3659, in UTC.
const timeFormat = "20060102150405"

// recent is the age up to which lists show the time of a day in place of the year.
const recent = 180 * 24 * time.Hour

// allFacts are the facts of MLSD and MLST, in their order.
var allFacts = []string{"type;", "size;", "modify;", "UNIX.mode;"}

// factsFeature is the line of FEAT, which marks the facts in use.
func factsFeature(chosen []string) string {
	text := "MLST "
	for _, f := range allFacts {
		name := strings.TrimSuffix(f, ";")
		if slices.Contains(chosen, f) {
			name += "*"
		}
		text += name + ";"
	}
	return text
}

// chooseFacts returns the facts that a client asks for, of those that there are.
func chooseFacts(arg string) (chosen []string) {
	for _, f := range allFacts {
		for _, asked := range strings.SplitAfter(arg, ";") {
			if strings.EqualFold(asked, f) {
				chosen = append(chosen, f)
				break
			}
		}
	}
	return chosen
}

// shows reports whether an entry can be in a list: a name with the end of a line cannot.
func shows(name string) bool { return !strings.ContainsAny(name, "\r\n") }

// factsOf is the line of MLSD for an entry that shows under a name.
func factsOf(i door.Info, name string, chosen []string) string {
	var line strings.Builder
	for _, f := range chosen {
		value := ""
		switch f {
		case "type;":
			value = kindOf(i)
		case "size;":
			if !i.Mode().IsRegular() {
				continue
			}
			value = fmt.Sprint(i.Size())
		case "modify;":
			value = i.ModTime().UTC().Format(timeFormat)
		case "UNIX.mode;":
			value = fmt.Sprintf("%04o", i.Mode().Perm())
		}
		line.WriteString(strings.TrimSuffix(f, ";") + "=" + value + ";")
	}
	return line.String() + " " + name
}

// kindOf is the fact type. A link does not show as what it leads to, so no client walks in a circle.
func kindOf(i door.Info) string {
	switch {
	case i.IsDir():
		return "dir"
	case i.Mode().IsRegular():
		return "file"
	case i.Mode()&fs.ModeSymlink == 0:
		return "OS.unix=other"
	case i.Link() == "" || strings.ContainsAny(i.Link(), ";\r\n"):
		return "OS.unix=symlink"
	}
	return "OS.unix=slink:" + i.Link()
}

// lineOf is the line of LIST for an entry, as ls -l prints it.
func lineOf(i door.Info, name string, now time.Time) string {
	at := i.ModTime().UTC()
	when := at.Format("Jan _2  2006")
	if age := now.Sub(at); age < recent && age > -time.Hour {
		when = at.Format("Jan _2 15:04")
	}
	if link := i.Link(); i.Mode()&fs.ModeSymlink != 0 && link != "" && shows(link) {
		name += " -> " + link
	}
	return fmt.Sprintf("%c%s 1 fxfer fxfer %12d %s %s", kindLetter(i.Mode()), i.Mode().Perm().String()[1:], i.Size(), when, name)
}

func kindLetter(m fs.FileMode) byte {
	for _, k := range []struct {
		bits   fs.FileMode
		letter byte
	}{{fs.ModeDir, 'd'}, {fs.ModeSymlink, 'l'}, {fs.ModeNamedPipe, 'p'}, {fs.ModeSocket, 's'}, {fs.ModeCharDevice, 'c'}, {fs.ModeDevice, 'b'}} {
		if m&k.bits != 0 {
			return k.letter
		}
	}
	return '-'
}

// lacks says how many entries a list lacks, "" for none.
func lacks(left door.Omitted) string {
	switch left.Count {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", without 1 entry: %v", left.First)
	}
	return fmt.Sprintf(", without %d entries, the first of them: %v", left.Count, left.First)
}

// named is what the argument of LIST and NLST names.
type named struct {
	folder  string     // whose entries are listed; "" for one entry
	pattern string     // of path.Match for their names; "" is all
	prefix  string     // before their names, so that NLST lists paths
	entry   *door.Info // that is listed
}

// find returns what an argument names: a folder, another entry or, where there is no such name, a
// pattern for the names in a folder. Clients also give options of ls.
func (x *control) find(arg string) (n named, err error) {
	info, err := x.tree.Stat(x.abs(arg), true)
	for err != nil && strings.HasPrefix(arg, "-") {
		_, arg, _ = strings.Cut(arg, " ")
		info, err = x.tree.Stat(x.abs(arg), true)
	}
	dir, base := path.Split(arg)
	switch {
	case err == nil && info.IsDir():
		if n.folder = x.abs(arg); arg != "" {
			n.prefix = strings.TrimSuffix(arg, "/") + "/"
		}
		return n, nil
	case err == nil:
		return named{entry: &info, prefix: dir}, nil
	case !strings.ContainsAny(base, "*?["):
		return n, err
	}
	if _, bad := path.Match(base, ""); bad != nil {
		return n, err
	}
	return named{folder: x.abs(dir), pattern: base, prefix: dir}, nil
}

// visit visits what is named. left has the entries that no list can have.
func (x *control) visit(n named, visit func(door.Info) error) (left door.Omitted, err error) {
	if n.entry != nil {
		return left, visit(*n.entry)
	}
	return x.tree.List(n.folder, func(i door.Info) error {
		if n.pattern != "" {
			if ok, _ := path.Match(n.pattern, i.Name()); !ok {
				return nil
			}
		}
		if !shows(i.Name()) {
			return fmt.Errorf("%w: %q: the end of a line", door.ErrName, i.Name())
		}
		return visit(i)
	})
}
