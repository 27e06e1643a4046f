;; attack: Imports the file system.
;; expect: load -> not-granted

;; in component:
(import "wasi:filesystem/types@0.2.0" (instance (export "open" (func (param "path" string) (result u32)))))
