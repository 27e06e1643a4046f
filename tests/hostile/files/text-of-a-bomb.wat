;; attack: Text that would be a large component.
;; expect: load -> text
;; bytes: text

;; in file:
(component
;; repeat 10000: (core module (func) (memory 1))
)
