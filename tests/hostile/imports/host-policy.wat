;; attack: Imports another policy of the host.
;; expect: load -> imports

;; in component:
(import "pointsman:policy/worker-scorer@0.1.0" (instance (export "score" (func))))
