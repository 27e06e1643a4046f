;; attack: A filter without a function.
;; expect: load -> function

;; in exports:
(export "pointsman:policy/worker-filter@0.1.0" (instance $score_exported))
