package slacktest

import (
	"fmt"
	"strings"
)

func (c *checker) element(p string, e map[string]any) {
	switch kind := str(e["type"]); kind {
	case "button":
		c.button(p, e)
	case "image":
		c.only(p, e, "image_url", "alt_text", "slack_file")
		c.length(p+"/alt_text", e["alt_text"], 1, 2000)
		return // has no action_id
	case "overflow":
		c.only(p, e, "action_id", "options", "confirm")
		c.options(p, e, 1, 5)
	case "static_select":
		c.only(p, e, "action_id", "options", "option_groups", "initial_option", "confirm", "focus_on_load", "placeholder")
		c.options(p, e, 1, 100)
	case "plain_text_input", "checkboxes", "radio_buttons":
		if !c.modal {
			c.err(p+"/type", "Unsupported element type in a message here: %s", kind)
		}
	default:
		c.err(p+"/type", "Unsupported element type: %s", kind)
	}
	c.id(p+"/action_id", e, "action_id", c.actions)
}

func (c *checker) button(p string, e map[string]any) {
	c.only(p, e, "text", "action_id", "url", "value", "style", "confirm", "accessibility_label")
	c.text(p+"/text", e["text"], maxButtonText, "plain_text")
	if chars(textOf(e["text"])) > 30 {
		c.warn(p+"/text", "a button shows about 30 characters")
	}
	if v, ok := e["value"]; ok {
		c.length(p+"/value", v, 0, maxButtonValue)
	}
	if v, ok := e["url"]; ok {
		c.length(p+"/url", v, 1, maxURL)
		if u := str(v); !strings.HasPrefix(u, "https://") && !strings.HasPrefix(u, "http://") {
			c.err(p+"/url", "must be a valid URL")
		}
	}
	if v, ok := e["style"]; ok && v != "primary" && v != "danger" {
		c.err(p+"/style", "must be primary or danger")
	}
	if v, ok := e["accessibility_label"]; ok {
		c.length(p+"/accessibility_label", v, 1, 75)
	}
	if v, ok := e["confirm"]; ok {
		c.confirm(p+"/confirm", v)
	}
}

func (c *checker) confirm(p string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		c.err(p, "must be an object")
		return
	}
	c.only(p, m, "title", "text", "confirm", "deny", "style")
	c.text(p+"/title", m["title"], 100, "plain_text")
	c.text(p+"/text", m["text"], 300, "")
	c.text(p+"/confirm", m["confirm"], 30, "plain_text")
	c.text(p+"/deny", m["deny"], 30, "plain_text")
	if s, ok := m["style"]; ok && s != "primary" && s != "danger" {
		c.err(p+"/style", "must be primary or danger")
	}
}

func (c *checker) options(p string, e map[string]any, least, most int) {
	list, _ := e["options"].([]any)
	if len(list) < least || len(list) > most {
		c.err(p+"/options", "must have %d to %d items", least, most)
	}
	for i, o := range list {
		q := fmt.Sprintf("%s/options/%d", p, i)
		m, _ := o.(map[string]any)
		c.only(q, m, "text", "value", "description", "url")
		c.text(q+"/text", m["text"], 75, "")
		c.length(q+"/value", m["value"], 1, 150)
	}
}

// richBlock checks a direct child of a rich_text block.
func (c *checker) richBlock(p string, e map[string]any) {
	switch kind := str(e["type"]); kind {
	case "rich_text_section":
		c.only(p, e, "elements")
		c.each(p, e, 0, c.rich)
	case "rich_text_quote":
		c.only(p, e, "elements", "border")
		c.each(p, e, 0, c.rich)
	case "rich_text_preformatted":
		c.only(p, e, "elements", "border", "language")
		c.each(p, e, 0, func(q string, x map[string]any) {
			if t := x["type"]; t != "text" && t != "link" {
				c.err(q+"/type", "only text and link are allowed here")
				return
			}
			c.rich(q, x)
		})
	case "rich_text_list":
		c.only(p, e, "elements", "style", "indent", "offset", "border")
		if s := e["style"]; s != "bullet" && s != "ordered" {
			c.err(p+"/style", "must be bullet or ordered")
		}
		c.each(p, e, 0, func(q string, x map[string]any) {
			if x["type"] != "rich_text_section" {
				c.err(q+"/type", "must be rich_text_section")
				return
			}
			c.richBlock(q, x)
		})
	default:
		c.err(p+"/type", "Unsupported rich text type: %s", kind)
	}
}

// rich checks an inline element.
func (c *checker) rich(p string, e map[string]any) {
	switch kind := str(e["type"]); kind {
	case "text":
		c.only(p, e, "text", "style")
		if s, ok := e["text"].(string); !ok || s == "" {
			c.err(p+"/text", "must be more than 0 characters")
		}
	case "link":
		c.only(p, e, "url", "text", "unsafe", "style")
		c.length(p+"/url", e["url"], 1, maxURL)
	case "user":
		c.only(p, e, "user_id", "style")
		c.known(p+"/user_id", str(e["user_id"]), "UW")
	case "usergroup":
		c.only(p, e, "usergroup_id", "style")
		c.known(p+"/usergroup_id", str(e["usergroup_id"]), "S")
	case "channel":
		c.only(p, e, "channel_id", "style")
		if c.s.channels[str(e["channel_id"])] == nil {
			c.err(p+"/channel_id", "unknown channel")
		}
	case "broadcast":
		c.only(p, e, "range")
		c.warn(p, "notifies everyone")
		if r := e["range"]; r != "here" && r != "channel" && r != "everyone" {
			c.err(p+"/range", "must be here, channel or everyone")
		}
	case "emoji":
		c.only(p, e, "name", "unicode", "skin_tone")
		c.length(p+"/name", e["name"], 1, 100)
	case "date":
		c.only(p, e, "timestamp", "format", "url", "fallback")
		if _, ok := e["timestamp"].(interface{ Int64() (int64, error) }); !ok {
			c.err(p+"/timestamp", "must be a number")
		}
		c.length(p+"/format", e["format"], 1, maxText)
	case "team", "color":
	default:
		c.err(p+"/type", "Unsupported rich text element: %s", kind)
	}
	if s, ok := e["style"]; ok {
		m, ok := s.(map[string]any)
		if !ok {
			c.err(p+"/style", "must be an object")
		}
		c.only(p+"/style", m, "bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink")
	}
}

// known accepts an id that exists and begins as its kind must.
func (c *checker) known(p, id, first string) {
	if id == "" || !strings.Contains(first, id[:1]) {
		c.err(p, "invalid id")
		return
	}
	c.mention(p, id)
}
