;; attack: Imports resources of the host.
;; expect: load -> imports

;; in component:
(import "resources" (instance (export "handle" (type (sub resource)))))
