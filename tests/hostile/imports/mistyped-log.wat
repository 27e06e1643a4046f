;; attack: Imports the log as a function of another type.
;; expect: load -> invalid

;; in component:
(import "pointsman:policy/log@0.1.0" (instance (export "log" (func (param "message" string)))))
