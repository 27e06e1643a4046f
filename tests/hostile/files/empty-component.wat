;; attack: A component with nothing in it.
;; expect: load -> no-policy

;; in file:
(component)
