;; attack: Uses asynchronous functions with stacks of their own, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_ASYNC_STACKFUL

;; in component:
(core module $waiting (func (export "f")))
(core instance $waiting (instantiate $waiting))
(func async (canon lift (core func $waiting "f") async))
