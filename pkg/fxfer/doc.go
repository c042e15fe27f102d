// Package fxfer sends and receives files over long fat pipes. It is the public face of the engine
// behind the fxfer command.
//
// A Client sends files to the shares of a Server, gets files from them and lists them. Client and
// Server know each other by Ed25519 keys. The connection is encrypted. Every byte is checked against
// BLAKE3 digests down to the disk, and an interrupted transfer resumes without a flag.
//
// # Compatibility
//
// Versions are semantic. Within a major version a program that compiles keeps compiling and keeps
// its meaning, as Go itself promises (https://go.dev/doc/go1compat). Four freedoms remain: structs
// get new fields, so name the fields in a literal; new kinds of errors, outcomes and limiters may
// come, so give a switch a default; texts of errors and limits may change; and what a zero option
// chooses may become better. Before version 1.0 a minor version may break this, and its release
// notes say how.
//
// The protocol has its own version: a client and a server built from different versions of this
// package work together while their protocol version is the same. Later versions read the folders
// and files, such as Options.Home, that earlier versions wrote.
//
// # Methods
//
// The types are aliases, and go doc shows no methods of an alias. These are the methods:
//
//	Client.Send                 sends files and folders to a share
//	Client.SendStream           sends an io.Reader as one file
//	Client.SendEarly            sends the beginnings of files that still grow
//	Client.SendRange            sends a range of a large file, of which others send the rest
//	Client.Get                  gets files and folders
//	Client.GetTo                gets one file into an io.Writer
//	Client.Copy                 has a server send files to another one
//	Client.Copies               lists the copies that a server makes for this client
//	Client.FollowCopy           follows a copy to its end
//	Client.ChangeCopy           pauses, resumes or cancels a copy
//	Client.SendFrom             sends what Server.OpenCopy has opened
//	Client.List                 lists a folder, or the shares
//	Client.Files                opens a session for the entries of a share, one by one
//	Client.Verify               compares what a server has with what is here
//	Client.Snapshots            lists the snapshots in a folder
//	Client.PruneSnapshots       removes snapshots
//	Client.Scrub                has the server read a snapshot and compare its digests
//	Client.LocalSnapshots       lists those that Get has made in a folder of this host
//	Client.PruneLocalSnapshots  removes some of those
//	Client.ScrubLocal           reads one of those and compares its digests
//	Client.Reaches              reports whether a server answers
//	Client.Probe                measures the path to a server
//	Client.MeasureUpload        sends from memory to memory as a transfer would, and measures
//
//	Files.Stat                  describes an entry
//	Files.List                  lists a folder
//	Files.Glob                  finds entries by a pattern
//	Files.Usage                 counts bytes and entries
//	Files.Read                  writes a file to an io.Writer
//	Files.Mkdir                 makes a folder
//	Files.Move                  renames an entry
//	Files.MoveInto              moves entries into a folder
//	Files.Remove                removes entries
//	Files.WouldRemove           says what Remove would remove
//	Files.Err                   says what ended the session
//	Files.Close                 ends the session
//
//	Server.Serve                serves until its context ends
//	Server.OpenCopy             opens what a user wants to be sent to another server
//	Server.Reload               applies other options
//	Server.Call                 connects to a client that cannot reach it
//	Server.Confine              confines the process to its folders
//	Server.Addr                 is the address that it listens on
//	Server.Pin                  is its key, as clients name it
//	Server.Home                 is its folder of keys and lists
//	Server.Invite               makes an invitation
//	Server.Doors                lists the doors for clients of older protocols
//	Server.Clients              lists the clients
//	Server.Revoke               takes all rights from a client
//	Server.Status               is a look at the server
//	Server.Session              is a look at one session
//	Server.Past                 lists sessions that have ended
//	Server.SetPriority          changes the priority of a session
//	Server.Cancel               ends a session
//	Server.Alive                reports whether it answers
//
//	Throttle.Rate               is the rate
//	Throttle.Set                changes it
//	Throttle.Passed             counts the bytes that have passed it
//	LivePriority.Get            is the priority
//	LivePriority.Set            changes it
//
//	CopySource.Err              says why the user may not read it any more
//	CopySource.Close            ends its use
//
//	CopyState.Ended             reports whether a copy is over
package fxfer
