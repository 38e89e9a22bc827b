package config

import (
	"errors"
	"reflect"
	"strings"
)

// reloadable are the keys that a running process takes over. What is not here is
// tied to what was opened at the start: a port, a connection, a directory, a key.
var reloadable = map[string]bool{
	"policy": true, "pins": true, "mcp.auth.tokens": true, "admin.tokens": true, "upstreams": true, "slack.signing_secrets": true,
	"people": true, "groups": true, "tickets": true,
}

// Take is the configuration that a running process has after it has read next: the
// keys that can be exchanged are next's, all others are its own. restart lists
// those of the others that next has otherwise. The whole is validated again, since
// it is in neither file.
func (c *Config) Take(next *Config) (now *Config, restart []string, err error) {
	if c.dir != next.dir {
		return nil, nil, errors.New("the configuration is in another directory")
	}
	all := *c
	merge(reflect.ValueOf(&all).Elem(), reflect.ValueOf(next).Elem(), "", &restart)
	if err := all.validate(); err != nil {
		return nil, restart, err
	}
	return &all, restart, nil
}

// merge takes the reloadable keys over into now, which is a copy that shares no
// struct with the original, and notes the other ones that differ.
func merge(now, next reflect.Value, path string, restart *[]string) {
	for i := range now.NumField() {
		f := now.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		key := strings.TrimPrefix(path+"."+name, ".")
		a, b := now.Field(i), next.Field(i)
		switch {
		case reloadable[key]:
			a.Set(b)
		case a.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Secret]():
			merge(a, b, key, restart)
		case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
			own := reflect.New(a.Type().Elem())
			own.Elem().Set(a.Elem())
			a.Set(own)
			merge(own.Elem(), b.Elem(), key, restart)
		case (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0: // left out, or empty
		case !reflect.DeepEqual(a.Interface(), b.Interface()):
			*restart = append(*restart, key)
		}
	}
}
