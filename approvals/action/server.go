package action

// ServerID says which server an upstream is: how it is started, the names of the
// variables it is given, and what it calls itself. The variables' values are
// secrets and change; a version changes with every update and is another one of
// the same server.
func ServerID(command []string, dir string, env []string, name string) Digest {
	parts := make([][]byte, 0, 2+len(command)+len(env))
	parts = append(parts, []byte(dir), []byte(name))
	for _, a := range command {
		parts = append(parts, []byte("arg:"+a))
	}
	for _, e := range env {
		parts = append(parts, []byte("env:"+e))
	}
	return Sum("countersign/upstream/v2", parts...)
}
